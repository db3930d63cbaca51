use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use linktax_records::Note;
use serde::Deserialize;

use super::items::Item;
use super::{Prompt, WorkloadError};

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(default)]
    from: String,
    #[serde(default)]
    value: String,
}

/// Reads a ShareGPT file in its own order; also says how many entries had no two turns to use.
pub(crate) fn load(
    path: &Path,
    limit: Option<u64>,
) -> Result<(Vec<Item>, Option<Note>), WorkloadError> {
    let file = File::open(path).map_err(|source| WorkloadError::Read {
        path: path.to_owned(),
        source,
    })?;
    let entries: Vec<Entry> =
        serde_json::from_reader(BufReader::new(file)).map_err(|source| WorkloadError::Json {
            path: path.to_owned(),
            line: source.line(),
            column: source.column(),
            source,
        })?;
    let limit = limit.map_or(usize::MAX, |l| usize::try_from(l).unwrap_or(usize::MAX));
    let mut items = Vec::new();
    let (mut seen, mut skipped) = (0usize, 0usize);
    for entry in &entries {
        if items.len() == limit {
            break;
        }
        seen += 1;
        match first_exchange(entry) {
            Some(item) => items.push(item),
            None => skipped += 1,
        }
    }
    if items.is_empty() {
        return Err(WorkloadError::Empty {
            path: path.to_owned(),
            detail: format!("none of {seen} entries has a human turn and an answer to it"),
        });
    }
    let note = (skipped > 0).then(|| {
        Note::new(
            "sharegpt_skipped",
            format!("{skipped} of {seen} entries skipped: no human turn with an answer to it"),
        )
    });
    Ok((items, note))
}

/// The first human turn and the length, in words, of the turn after it.
fn first_exchange(entry: &Entry) -> Option<Item> {
    let human = entry
        .conversations
        .iter()
        .position(|turn| matches!(turn.from.as_str(), "human" | "user"))?;
    let question = &entry.conversations[human].value;
    let answer = &entry.conversations.get(human + 1)?.value;
    let words = answer.split_whitespace().count() as u64;
    (!question.trim().is_empty() && words > 0).then(|| Item {
        prompt: Prompt::Text(question.clone()),
        output_len: Some(words),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    const CONVERSATIONS: &str = r#"[
      {"id": "a", "conversations": [
        {"from": "system", "value": "be brief"},
        {"from": "human", "value": "why?"}, {"from": "gpt", "value": "because  of that"}]},
      {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
      {"id": "c", "conversations": []},
      {"id": "d"},
      {"id": "e", "conversations": [
        {"from": "user", "value": "and?"}, {"from": "assistant", "value": "so"},
        {"from": "user", "value": "later"}]}
    ]"#;

    #[test]
    fn the_first_exchange_is_used_and_the_rest_counted() {
        let file = file(CONVERSATIONS);
        let (items, note) = load(file.path(), None).unwrap();
        let expected = |text: &str, words| Item {
            prompt: Prompt::Text(text.to_owned()),
            output_len: Some(words),
        };
        assert_eq!(items, [expected("why?", 3), expected("and?", 1)]);
        assert!(note.unwrap().message.starts_with("3 of 5 entries skipped"));
    }

    #[test]
    fn a_limit_stops_the_count_of_skipped_entries_too() {
        let file = file(CONVERSATIONS);
        let (items, note) = load(file.path(), Some(1)).unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(note, None);
    }

    #[test]
    fn a_file_of_another_shape_is_placed() {
        let broken = file("[\n  {\"conversations\": 3}\n]");
        let message = load(broken.path(), None).unwrap_err().to_string();
        assert!(message.contains(":2:"), "{message}");
        let empty = file("[{\"id\": 1}]");
        let message = load(empty.path(), None).unwrap_err().to_string();
        assert!(message.contains("none of 1 entries"), "{message}");
    }
}
