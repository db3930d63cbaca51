//! The shape of a model from its Hugging Face `config.json`.

use serde::Deserialize;

use crate::Model;

/// Why a `config.json` gives no shape.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON, or a field of another type.
    #[error("not a model configuration")]
    Syntax(#[source] serde_json::Error),
    /// A field that the sizes depend on is not there, at the top or in `text_config`.
    #[error("no {field}, neither at the top nor in text_config")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A data type whose size is not known.
    #[error("torch_dtype {word:?} is not known; known are {DTYPES}")]
    Dtype {
        /// The word.
        word: String,
    },
}

const DTYPES: &str = "bfloat16, float16, float32, float64, float8_e4m3fn, float8_e5m2";

/// What is read; the rest of the file is not looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    hidden_size: Option<u64>,
    num_hidden_layers: Option<u32>,
    vocab_size: Option<u64>,
    torch_dtype: Option<String>,
    /// The newer name of `torch_dtype`.
    dtype: Option<String>,
    text_config: Option<Box<Fields>>,
}

impl Fields {
    /// Multi-modal models keep the language model's shape one level down, and it is that one which counts.
    fn get<T>(&self, field: impl Fn(&Fields) -> Option<T>) -> Option<T> {
        self.text_config
            .as_deref()
            .and_then(&field)
            .or_else(|| field(self))
    }
}

impl Model {
    /// Reads `hidden_size`, `num_hidden_layers`, `torch_dtype` and `vocab_size` of a `config.json`, from `text_config`
    /// where there is one. The number of draft passes is no matter of the file and stays 0.
    ///
    /// ```
    /// use linktax_linkmodel::Model;
    ///
    /// let text = r#"{"text_config": {"hidden_size": 5120, "num_hidden_layers": 64}, "torch_dtype": "bfloat16"}"#;
    /// let model = Model::from_hf_config(text).unwrap();
    /// assert_eq!((model.layers, model.hidden, model.dtype_bytes), (64, 5120, 2));
    /// ```
    ///
    /// # Errors
    /// Text that is not JSON, a missing field, an unknown data type.
    pub fn from_hf_config(text: &str) -> Result<Model, ConfigError> {
        let fields: Fields = serde_json::from_str(text).map_err(ConfigError::Syntax)?;
        let missing = |field| ConfigError::Missing { field };
        let dtype = fields
            .get(|f| f.torch_dtype.clone().or_else(|| f.dtype.clone()))
            .ok_or(missing("torch_dtype"))?;
        Ok(Model {
            layers: fields
                .get(|f| f.num_hidden_layers)
                .ok_or(missing("num_hidden_layers"))?,
            hidden: fields
                .get(|f| f.hidden_size)
                .ok_or(missing("hidden_size"))?,
            dtype_bytes: dtype_bytes(&dtype).ok_or(ConfigError::Dtype { word: dtype })?,
            vocab: fields.get(|f| f.vocab_size),
            draft_depth: 0,
        })
    }
}

/// Bytes of a value of this data type, by its PyTorch name.
pub fn dtype_bytes(word: &str) -> Option<u64> {
    Some(match word.strip_prefix("torch.").unwrap_or(word) {
        "float8_e4m3fn" | "float8_e5m2" => 1,
        "bfloat16" | "float16" | "half" => 2,
        "float32" | "float" => 4,
        "float64" | "double" => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_model_s_shape_wins_over_the_outer_one() {
        let text = r#"{"hidden_size": 1, "vocab_size": 7, "dtype": "float32",
            "text_config": {"hidden_size": 2560, "num_hidden_layers": 36, "torch_dtype": "torch.bfloat16"}}"#;
        let model = Model::from_hf_config(text).unwrap();
        assert_eq!((model.hidden, model.dtype_bytes), (2560, 2));
        assert_eq!((model.vocab, model.draft_depth), (Some(7), 0));
    }

    #[test]
    fn what_is_missing_or_odd_is_named() {
        let said = |text: &str| Model::from_hf_config(text).unwrap_err().to_string();
        assert_eq!(said("nonsense"), "not a model configuration");
        assert_eq!(
            said(r#"{"hidden_size": 8, "torch_dtype": "half"}"#),
            "no num_hidden_layers, neither at the top nor in text_config"
        );
        assert_eq!(
            said("{}"),
            "no torch_dtype, neither at the top nor in text_config"
        );
        let odd = r#"{"hidden_size": 8, "num_hidden_layers": 2, "torch_dtype": "int4"}"#;
        assert!(said(odd).starts_with("torch_dtype \"int4\" is not known"));
    }
}
