use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use linktax_records::RequestRecord;
use serde::Deserialize;

use crate::StoreError;

/// Size of the read buffer: large enough that system calls do not matter.
pub(crate) const READ_BUFFER: usize = 256 * 1024;

/// Adjoining lines of one cell and attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Byte offset of the first line.
    pub(crate) start: u64,
    /// Byte offset after the last line.
    pub(crate) end: u64,
    /// Number of the first line, from 1.
    pub(crate) first_line: u64,
}

/// A last line that has no newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Byte offset of its start.
    pub(crate) start: u64,
    /// Its number, from 1.
    pub(crate) line: u64,
    /// Its bytes.
    pub(crate) len: u64,
    /// Whether it is a whole record all the same (only the newline was lost).
    pub(crate) whole: bool,
}

/// Which bytes of `requests.jsonl` belong to which cell, so that to read one cell does not parse the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordIndex {
    /// By cell and attempt.
    spans: BTreeMap<(u32, u32), Vec<Span>>,
    pub(crate) tail: Option<Tail>,
    /// Length of the file.
    pub(crate) len: u64,
}

impl RecordIndex {
    /// Reads the file once. A missing file is an empty one: the run was killed before its first record.
    pub(crate) fn build(path: &Path) -> Result<RecordIndex, StoreError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(RecordIndex::default()),
            Err(e) => return Err(StoreError::io("open the file", path)(e)),
        };
        RecordIndex::build_from(BufReader::with_capacity(READ_BUFFER, file), path)
    }

    fn build_from(mut input: impl BufRead, path: &Path) -> Result<RecordIndex, StoreError> {
        let mut index = RecordIndex::default();
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            let read = input
                .read_until(b'\n', &mut line)
                .map_err(StoreError::io("read the file", path))?;
            if read == 0 {
                return Ok(index);
            }
            number += 1;
            let start = index.len;
            index.len += read as u64;
            if line.last() != Some(&b'\n') {
                let whole = serde_json::from_slice::<RequestRecord>(&line).is_ok();
                index.tail = Some(Tail {
                    start,
                    line: number,
                    len: read as u64,
                    whole,
                });
                if !whole {
                    return Ok(index);
                }
            }
            if !line.trim_ascii().is_empty() {
                let key = key_of(&line).map_err(|e| StoreError::record(path, number, &e))?;
                index.push(key, start, number);
            }
        }
    }

    fn push(&mut self, key: (u32, u32), start: u64, line: u64) {
        let spans = self.spans.entry(key).or_default();
        match spans.last_mut() {
            Some(last) if last.end == start => last.end = self.len,
            _ => spans.push(Span {
                start,
                end: self.len,
                first_line: line,
            }),
        }
    }

    /// The lines of this attempt at this cell.
    pub(crate) fn spans(&self, cell: u32, attempt: u32) -> &[Span] {
        self.spans.get(&(cell, attempt)).map_or(&[], Vec::as_slice)
    }

    /// The latest attempt of which a record exists.
    pub(crate) fn last_attempt(&self, cell: u32) -> Option<u32> {
        self.spans
            .range((cell, 0)..=(cell, u32::MAX))
            .next_back()
            .map(|(&(_, attempt), _)| attempt)
    }

    /// Cells of which a record exists, in order.
    pub(crate) fn cells(&self) -> impl Iterator<Item = u32> + '_ {
        let mut last = None;
        self.spans.keys().filter_map(move |&(cell, _)| {
            let fresh = last != Some(cell);
            last = Some(cell);
            fresh.then_some(cell)
        })
    }
}

/// The cell and attempt of a line.
fn key_of(line: &[u8]) -> Result<(u32, u32), serde_json::Error> {
    #[derive(Deserialize)]
    struct Key {
        cell: u32,
        #[serde(default)]
        attempt: u32,
    }
    if let Some(key) = leading_key(line) {
        return Ok(key);
    }
    let key: Key = serde_json::from_slice(line)?;
    // The derived decoder also takes `[3, 0]` for a key.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err(serde::de::Error::custom("not a JSON object"));
    }
    Ok((key.cell, key.attempt))
}

/// The same for a line as our writer makes it, without looking at the rest of the line.
fn leading_key(line: &[u8]) -> Option<(u32, u32)> {
    let (cell, rest) = leading_number(line.strip_prefix(b"{\"cell\":")?)?;
    let (attempt, _) = leading_number(rest.strip_prefix(b",\"attempt\":")?)?;
    Some((cell, attempt))
}

fn leading_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    // A fraction or an exponent would follow: leave those to the real decoder.
    let number = (rest.first() == Some(&b',')).then_some(number)?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(text: &str) -> Result<RecordIndex, StoreError> {
        RecordIndex::build_from(text.as_bytes(), Path::new("requests.jsonl"))
    }

    #[test]
    fn adjoining_lines_share_a_span() {
        let a = "{\"cell\":0,\"attempt\":0,\"x\":1}\n";
        let b = "{\"cell\":1,\"attempt\":2,\"x\":1}\n";
        let i = index(&format!("{a}{a}{b}{a}")).unwrap();
        let n = a.len() as u64;
        assert_eq!(
            i.spans(0, 0),
            [
                Span {
                    start: 0,
                    end: 2 * n,
                    first_line: 1
                },
                Span {
                    start: 3 * n,
                    end: 4 * n,
                    first_line: 4
                },
            ]
        );
        assert_eq!(i.last_attempt(1), Some(2));
        assert_eq!(i.last_attempt(7), None);
        assert_eq!(i.cells().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn foreign_field_order_is_understood() {
        let i = index("{ \"x\": {\"cell\": 9}, \"attempt\": 3, \"cell\": 4 }\n\n{\"cell\":5}\n");
        let i = i.unwrap();
        assert_eq!(i.cells().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(i.last_attempt(4), Some(3));
        assert_eq!(i.spans(5, 0)[0].first_line, 3);
    }

    #[test]
    fn fast_and_slow_key_agree() {
        for line in [
            "{\"cell\":0,\"attempt\":0,\"index\":1}",
            "{\"cell\":4294967295,\"attempt\":7,\"index\":1}",
            "{\"cell\":3,\"index\":1}",
        ] {
            let slow: serde_json::Value = serde_json::from_str(line).unwrap();
            let (cell, attempt) = key_of(line.as_bytes()).unwrap();
            assert_eq!(u64::from(cell), slow["cell"].as_u64().unwrap());
            assert_eq!(
                u64::from(attempt),
                slow["attempt"].as_u64().unwrap_or_default()
            );
        }
        assert!(key_of(b"{\"cell\":4294967296,\"attempt\":0,\"x\":0}").is_err());
        assert!(key_of(b"{\"cell\":1.5,\"attempt\":0,\"x\":0}").is_err());
    }

    #[test]
    fn garbage_in_the_middle_names_its_line() {
        let error = index("{\"cell\":0,\"attempt\":0,\"x\":1}\nnope\n").unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Record {
                    line: 2,
                    column: 2,
                    ..
                }
            ),
            "{error}"
        );
    }
}
