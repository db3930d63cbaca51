//! The classes a kernel can have and the groups they belong to.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a step's time is reported under; each [`Class`] belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Dense matrix products of the model's linear layers.
    Linear,
    /// Softmax attention over the KV cache, and what selects the tokens of sparse attention.
    Attention,
    /// Linear attention and state-space layers: GDN, KDA, Mamba.
    Ssm,
    /// Mixture of experts: expert products, routing, permutation.
    Moe,
    /// Communication between GPUs, waiting included.
    Comm,
    /// Every other compute kernel.
    Other,
    /// Copies and fills that are not communication.
    Copy,
    /// CUDA graphs seen as one opaque span.
    Graph,
    /// Names that nothing is known of.
    Unknown,
}

impl Group {
    /// All groups in the order of reports.
    pub const ALL: [Group; 9] = [
        Group::Linear,
        Group::Attention,
        Group::Ssm,
        Group::Moe,
        Group::Comm,
        Group::Other,
        Group::Copy,
        Group::Graph,
        Group::Unknown,
    ];

    /// The word used in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Linear => "linear",
            Group::Attention => "attention",
            Group::Ssm => "ssm",
            Group::Moe => "moe",
            Group::Comm => "comm",
            Group::Other => "other",
            Group::Copy => "copy",
            Group::Graph => "graph",
            Group::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A fine class of operations. [`Class::as_str`] is the word that rule files and reports use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $constant:ident = $word:literal in $group:ident;)+) => {
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named like the constants, numbers them")]
        enum Number { $($constant,)+ }

        /// Word and group by number.
        const TABLE: &[(&str, Group)] = &[$(($word, Group::$group),)+];

        impl Class {
            $($(#[doc = $doc])+ pub const $constant: Class = Class(Number::$constant as u8);)+

            /// Every class, in the order of reports.
            pub const ALL: &'static [Class] = &[$(Class::$constant,)+];
        }
    };
}

classes! {
    /// A matrix product of a linear layer.
    LINEAR = "linear" in Linear;
    /// The sum over the parts of a split matrix product.
    LINEAR_SPLITK_REDUCE = "linear.splitk_reduce" in Linear;
    /// Attention over the KV cache.
    ATTENTION = "attention" in Attention;
    /// Scores and choice of the tokens that sparse attention reads.
    ATTENTION_INDEXER = "attention.indexer" in Attention;
    /// An `ssm` kernel that was folded into attention on request; see [`Classes::fold_ssm`](crate::Classes::fold_ssm).
    ATTENTION_SSM = "attention.ssm" in Attention;
    /// Linear attention: GDN, KDA, lightning attention, Mamba, with their convolutions and gated norms.
    SSM = "ssm" in Ssm;
    /// A matrix product of experts.
    MOE_GEMM = "moe_gemm" in Moe;
    /// Routing, alignment, permutation and sums of a mixture of experts.
    MOE_AUX = "moe_aux" in Moe;
    /// A kernel of the NCCL library.
    COMM_NCCL = "comm.nccl" in Comm;
    /// A collective of an engine's or framework's own: custom all-reduce, symmetric memory, quick-reduce.
    COMM_CUSTOM_AR = "comm.custom_ar" in Comm;
    /// A collective fused with residual, norm or quantisation; its floor is their memory time, not zero.
    COMM_FUSED = "comm.fused" in Comm;
    /// A matrix product fused with a collective: both at once, so it takes no part in what-if.
    COMM_FUSED_GEMM = "comm.fused_gemm" in Comm;
    /// Dispatch and combine of expert parallelism.
    COMM_EP = "comm.ep" in Comm;
    /// A copy between two GPUs.
    COMM_COPY = "comm.copy" in Comm;
    /// Normalisation, also with residual or quantisation.
    NORM = "norm" in Other;
    /// Activation, also with quantisation.
    ACT = "act" in Other;
    /// Rotary embedding, also with norm or cache write.
    ROPE = "rope" in Other;
    /// Writes to, gathers from and copies of the KV cache.
    KV = "kv" in Other;
    /// Quantisation of activations.
    QUANT = "quant" in Other;
    /// Weight preparation, which must not happen inside steps.
    LOAD_TIME = "load_time" in Other;
    /// Sampling, rejection sampling, logits processing.
    SAMPLE = "sample" in Other;
    /// Preparation and book-keeping of a step: positions, slots, draft inputs.
    PREP = "prep" in Other;
    /// Embedding look-up.
    EMBED = "embed" in Other;
    /// Elementwise kernels, reductions and moves that belong to nothing else.
    ELEM = "elem" in Other;
    /// A copy or fill by its name in a listing (`[CUDA memcpy Host-to-Device]`).
    MEM = "mem" in Copy;
    /// A copy that is not between two GPUs.
    COPY = "copy" in Copy;
    /// A fill.
    MEMSET = "memset" in Copy;
    /// A CUDA graph as one opaque span.
    GRAPH = "graph" in Graph;
    /// A name that no rule and no table knows.
    UNKNOWN = "unknown" in Unknown;
}

impl Class {
    /// The class of a word, if it is one.
    ///
    /// ```
    /// use linktax_trace::{Class, Group};
    ///
    /// let class = Class::from_word("comm.nccl").unwrap();
    /// assert_eq!(class, Class::COMM_NCCL);
    /// assert_eq!(class.group(), Group::Comm);
    /// assert_eq!(Class::from_word("nccl"), None);
    /// ```
    pub fn from_word(word: &str) -> Option<Class> {
        Class::ALL.iter().copied().find(|c| c.as_str() == word)
    }

    /// The word used in rule files and reports.
    pub fn as_str(self) -> &'static str {
        TABLE
            .get(usize::from(self.0))
            .map_or("unknown", |row| row.0)
    }

    /// The group it is reported under.
    pub fn group(self) -> Group {
        TABLE
            .get(usize::from(self.0))
            .map_or(Group::Unknown, |row| row.1)
    }

    /// Whether a rule may give this class: those of operations without a kernel name are not for rules.
    pub(crate) fn for_rules(self) -> bool {
        !matches!(
            self,
            Class::COPY | Class::COMM_COPY | Class::MEMSET | Class::GRAPH
        )
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Class({})", self.as_str())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Class::from_word(&word)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown class {word:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct_and_come_back() {
        for &class in Class::ALL {
            assert_eq!(Class::from_word(class.as_str()), Some(class));
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("{:?}", class.as_str()));
            assert_eq!(serde_json::from_str::<Class>(&json).unwrap(), class);
        }
    }

    #[test]
    fn a_dotted_word_stays_in_the_group_of_its_stem() {
        for &class in Class::ALL {
            let stem = class.as_str().split('.').next().unwrap();
            if let Some(parent) = Class::from_word(stem) {
                assert_eq!(parent.group(), class.group(), "{class}");
            }
        }
        assert!(Group::ALL.is_sorted());
    }
}
