use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Map, Value};

use super::items::Item;
use super::{Prompt, WorkloadError};

/// One line of a JSONL file, with its place for error messages.
pub(crate) struct Line<'a> {
    path: &'a Path,
    number: usize,
    pub(crate) fields: Map<String, Value>,
}

impl Line<'_> {
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn wrong(&self, field: &'static str, expected: &'static str) -> WorkloadError {
        let found = match self.fields.get(field) {
            None => "missing".to_owned(),
            Some(value) => excerpt(value),
        };
        WorkloadError::Field {
            path: self.path.to_owned(),
            line: self.number,
            field,
            found,
            expected,
        }
    }

    /// A field that is a whole number of at least 1; `None` if absent or `null`.
    pub(crate) fn count(&self, field: &'static str) -> Result<Option<u64>, WorkloadError> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) if count > 0 => Ok(Some(count)),
                _ => Err(self.wrong(field, "a whole number of at least 1")),
            },
        }
    }
}

/// The start of a value, short enough for a message.
fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// Reads `path` line by line, skipping blank lines, until `limit` values are there.
pub(crate) fn read_lines<T>(
    path: &Path,
    limit: Option<u64>,
    mut each: impl FnMut(Line<'_>) -> Result<T, WorkloadError>,
) -> Result<Vec<T>, WorkloadError> {
    let unreadable = |source| WorkloadError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut values = Vec::new();
    for (index, text) in BufReader::new(file).lines().enumerate() {
        if limit.is_some_and(|limit| values.len() as u64 >= limit) {
            break;
        }
        let text = text.map_err(unreadable)?;
        // Some editors put a byte-order mark before the first line.
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        let number = index + 1;
        let fields = serde_json::from_str(text).map_err(|source| WorkloadError::Json {
            path: path.to_owned(),
            line: number,
            column: source.column(),
            source,
        })?;
        values.push(each(Line {
            path,
            number,
            fields,
        })?);
    }
    if values.is_empty() {
        return Err(WorkloadError::Empty {
            path: path.to_owned(),
            detail: "every line is blank".to_owned(),
        });
    }
    Ok(values)
}

/// Names under which tools write the number of tokens to generate, in order of preference.
const OUTPUT_FIELDS: [&str; 3] = ["output_len", "max_tokens", "output_tokens"];

/// Reads a file of prompts, one JSON object a line.
pub(crate) fn load(path: &Path, limit: Option<u64>) -> Result<Vec<Item>, WorkloadError> {
    read_lines(path, limit, |mut line| {
        let mut output_len = None;
        for field in OUTPUT_FIELDS {
            output_len = output_len.or(line.count(field)?);
        }
        let prompt = prompt(&mut line)?;
        Ok(Item { prompt, output_len })
    })
}

fn prompt(line: &mut Line<'_>) -> Result<Prompt, WorkloadError> {
    const MESSAGES: &str = "a list of message objects, not empty, and no `prompt` beside it";
    const PROMPT: &str = "a string or a list of token ids, not empty (or `messages` instead)";
    let messages = line.fields.get("messages").is_some_and(|v| !v.is_null());
    if messages {
        let alone = line.fields.get("prompt").is_none_or(Value::is_null);
        let objects = |v: &Value| {
            v.as_array()
                .is_some_and(|a| !a.is_empty() && a.iter().all(Value::is_object))
        };
        return match line.fields.get_mut("messages") {
            Some(value) if alone && objects(value) => Ok(Prompt::Messages(value.take())),
            _ => Err(line.wrong("messages", MESSAGES)),
        };
    }
    let ids = |values: &[Value]| -> Option<Vec<u32>> {
        values
            .iter()
            .map(|v| v.as_u64().and_then(|id| u32::try_from(id).ok()))
            .collect()
    };
    match line.fields.get("prompt") {
        Some(Value::String(text)) if !text.is_empty() => Ok(Prompt::Text(text.clone())),
        Some(Value::Array(values)) if !values.is_empty() => ids(values)
            .map(Prompt::TokenIds)
            .ok_or_else(|| line.wrong("prompt", PROMPT)),
        _ => Err(line.wrong("prompt", PROMPT)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn failure(text: &str) -> String {
        let file = file(text);
        let error = load(file.path(), None).unwrap_err().to_string();
        error.replace(&file.path().display().to_string(), "F")
    }

    #[test]
    fn every_shape_of_prompt_is_read_and_blank_lines_are_skipped() {
        let file = file(concat!(
            "\u{feff}{\"prompt\": \"tell me\", \"output_len\": 5, \"extra\": [1]}\n\n",
            "{\"prompt\": [1, 2, 3], \"max_tokens\": 6}\n   \n",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"output_tokens\": 7}\r\n",
            "{\"prompt\": \"last\"}",
        ));
        let items = load(file.path(), None).unwrap();
        let outputs: Vec<_> = items.iter().map(|item| item.output_len).collect();
        assert_eq!(outputs, [Some(5), Some(6), Some(7), None]);
        assert_eq!(items[0].prompt, Prompt::Text("tell me".to_owned()));
        assert_eq!(items[1].prompt, Prompt::TokenIds(vec![1, 2, 3]));
        assert_eq!(
            items[2].prompt,
            Prompt::Messages(json!([{"role": "user", "content": "hi"}]))
        );
        assert_eq!(load(file.path(), Some(2)).unwrap().len(), 2);
    }

    #[test]
    fn errors_name_the_line_the_field_and_what_was_expected() {
        let good = "{\"prompt\": \"a\"}\n\n";
        let prompt = "a string or a list of token ids, not empty (or `messages` instead)";
        assert_eq!(
            failure(&format!("{good}{{\"promt\": \"b\"}}")),
            format!("F:3: `prompt` is missing: expected {prompt}")
        );
        assert_eq!(
            failure("{\"prompt\": [1, -2]}"),
            format!("F:1: `prompt` is [1,-2]: expected {prompt}")
        );
        assert_eq!(
            failure("{\"prompt\": \"\"}"),
            format!("F:1: `prompt` is \"\": expected {prompt}")
        );
        assert_eq!(
            failure("{\"prompt\": \"a\", \"max_tokens\": 0}"),
            "F:1: `max_tokens` is 0: expected a whole number of at least 1"
        );
        assert!(failure("{\"messages\": []}").contains("`messages` is []: expected a list"));
        assert!(failure("{\"messages\": [{}], \"prompt\": \"a\"}").contains("no `prompt` beside"));
        assert!(failure(&format!("{good}{{\"prompt\": ")).starts_with("F:3:10: not the JSON"));
        assert!(failure("[1]").starts_with("F:1:"));
        assert_eq!(
            failure("\n\n"),
            "F: no usable request in it: every line is blank"
        );
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let long = format!("{{\"prompt\": {{\"a\": \"{}\"}}}}", "é".repeat(500));
        assert!(failure(&long).len() < 200);
    }
}
