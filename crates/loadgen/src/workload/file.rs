use std::fs;
use std::path::{Path, PathBuf};

use linktax_records::CacheMode;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{WorkloadError, WorkloadSpec};

/// A workload file: what to send, and the run it is meant for.
///
/// ```
/// use linktax_loadgen::workload::WorkloadFile;
///
/// let file = WorkloadFile::from_toml(
///     "[run]\nconcurrency = [1, 8]\ninput_len = [4096]\ncache = 'cold'\n\
///      [workload]\nlengths = 'uniform:0.5'\n",
///     "mine.toml".as_ref(),
/// )?;
/// assert_eq!(file.run.concurrency, Some(vec![1, 8]));
///
/// let error = WorkloadFile::from_toml("[run]\nconcurency = [1]\n", "mine.toml".as_ref());
/// let message = error.unwrap_err().to_string();
/// assert!(message.starts_with("mine.toml:2:1: unknown field `concurency`"));
/// # Ok::<(), linktax_loadgen::workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadFile {
    /// The grid and the load; what the command line gives takes precedence.
    pub run: RunSection,
    /// What to send.
    pub workload: WorkloadSpec,
}

/// The `[run]` table: the flags of `linktax bench` with the same names, every one optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// `completions` or `chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Requests in flight, one cell each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Vec<u32>>,
    /// Prompt tokens, one cell each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_len: Option<Vec<u64>>,
    /// Output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_len: Option<u64>,
    /// Measured requests a cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Measured requests a cell, as a multiple of its concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waves: Option<u64>,
    /// Length of the measured phase of a cell, in seconds, instead of a number of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Warm-up requests a cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<u64>,
    /// Declared cache state: `cold`, `warm`, `prefix=SHARE` or `workload`.
    #[serde(
        deserialize_with = "read_cache",
        serialize_with = "write_cache",
        skip_serializing_if = "Option::is_none"
    )]
    pub cache: Option<CacheMode>,
    /// Threshold of a stall, as `--stall-gap` takes it (`"200ms"`, `"auto"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_gap: Option<String>,
    /// Open loop: requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<f64>,
    /// Open loop: gamma shape of the gaps; 1 is Poisson, `inf` constant spacing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burstiness: Option<f64>,
    /// Open loop and traces: most requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// Traces: time runs this many times faster than in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Seed of lengths, contents and arrival times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl RunSection {
    /// Measured requests of a cell: the larger of `requests` and `waves * concurrency`.
    pub fn requests_at(&self, concurrency: u32) -> Option<u64> {
        let by_wave = self
            .waves
            .map(|waves| waves.saturating_mul(u64::from(concurrency)));
        self.requests.max(by_wave)
    }
}

impl WorkloadFile {
    /// Reads a workload file. A relative `path` in it is taken from the file's own directory.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not TOML, or holds a word that is not known; with the line, the
    /// column and the valid words.
    pub fn from_path(path: &Path) -> Result<Self, WorkloadError> {
        let text = fs::read_to_string(path).map_err(|source| WorkloadError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::from_toml(&text, path)
    }

    /// The same from text; `path` names it in errors, and gives the workload its name.
    ///
    /// # Errors
    ///
    /// As [`Self::from_path`], but for reading.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, WorkloadError> {
        let mut file: WorkloadFile =
            toml::from_str(text).map_err(|error| toml_error(path, text, &error))?;
        let workload = &mut file.workload;
        if workload.name.is_none() {
            workload.name = path.file_stem().map(|s| s.to_string_lossy().into_owned());
        }
        workload.path = workload.path.take().map(|data| beside(path, data));
        Ok(file)
    }
}

fn beside(file: &Path, data: PathBuf) -> PathBuf {
    match file.parent() {
        Some(directory) => directory.join(data),
        None => data,
    }
}

fn toml_error(path: &Path, text: &str, error: &toml::de::Error) -> WorkloadError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    WorkloadError::Toml {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message: error.message().replace('\n', " "),
    }
}

/// Reads a cache mode as `--cache` and workload files write it.
///
/// ```
/// use linktax_loadgen::workload::parse_cache;
/// use linktax_records::CacheMode;
///
/// assert_eq!(parse_cache("prefix=0.5")?, CacheMode::Prefix(0.5));
/// assert!(parse_cache("hot").is_err());
/// # Ok::<(), linktax_loadgen::workload::WorkloadError>(())
/// ```
///
/// # Errors
///
/// Any other word, or a share that is not above 0 and below 1; the message lists the valid ones.
pub fn parse_cache(text: &str) -> Result<CacheMode, WorkloadError> {
    let share = |text: &str| text.parse().ok().filter(|s| *s > 0.0 && *s < 1.0);
    match text {
        "cold" => Some(CacheMode::Cold),
        "warm" => Some(CacheMode::Warm),
        "workload" => Some(CacheMode::Workload),
        _ => text
            .strip_prefix("prefix=")
            .and_then(share)
            .map(CacheMode::Prefix),
    }
    .ok_or_else(|| WorkloadError::Setting {
        field: "cache",
        value: format!("`{text}`"),
        expected: "`cold`, `warm`, `prefix=SHARE` (above 0, below 1) or `workload`".to_owned(),
    })
}

fn read_cache<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CacheMode>, D::Error> {
    let text = String::deserialize(from)?;
    parse_cache(&text).map(Some).map_err(de::Error::custom)
}

fn write_cache<S: Serializer>(cache: &Option<CacheMode>, to: S) -> Result<S::Ok, S::Error> {
    match cache {
        Some(cache) => to.collect_str(cache),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{CellCoord, Lengths, Workload, WorkloadKind};

    fn message(text: &str) -> String {
        WorkloadFile::from_toml(text, "dir/w.toml".as_ref())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn unknown_words_are_placed_and_answered_with_the_valid_ones() {
        let unknown = message("[workload]\nname = 'x'\n  lenghts = 'fixed'\n");
        assert!(
            unknown.starts_with("dir/w.toml:3:3: unknown field `lenghts`"),
            "{unknown}"
        );
        assert!(unknown.contains("`lengths`"), "{unknown}");

        let kind = message("[workload]\nkind = 'shared_gpt'\n");
        assert!(
            kind.starts_with("dir/w.toml:2:8: unknown variant `shared_gpt`"),
            "{kind}"
        );
        assert!(kind.contains("`sharegpt`"), "{kind}");

        let cache = message("[run]\ncache = 'hot'\n");
        assert!(
            cache.starts_with("dir/w.toml:2:9: cache is `hot`"),
            "{cache}"
        );
        assert!(cache.contains("`prefix=SHARE`"), "{cache}");

        let lengths = message("[workload]\n\nlengths = 'zipf:1'\n");
        assert!(
            lengths.starts_with("dir/w.toml:3:11: lengths is `zipf:1`"),
            "{lengths}"
        );

        let table = message("[wrkload]\n");
        assert!(
            table.starts_with("dir/w.toml:1:2: unknown field `wrkload`"),
            "{table}"
        );
        let broken = message("[run]\nconcurrency = [1,\n");
        assert!(broken.starts_with("dir/w.toml:"), "{broken}");
    }

    #[test]
    fn a_file_is_read_relative_to_itself_and_named_after_itself() {
        let file = WorkloadFile::from_toml(
            "[workload]\nkind = 'trace'\npath = 'data/t.jsonl'\n",
            "dir/steady.toml".as_ref(),
        )
        .unwrap();
        assert_eq!(
            file.workload.path.as_deref(),
            Some("dir/data/t.jsonl".as_ref())
        );
        assert_eq!(file.workload.name.as_deref(), Some("steady"));
        assert_eq!(file.workload.kind, WorkloadKind::Trace);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = WorkloadFile::from_path("no/such.toml".as_ref()).unwrap_err();
        assert_eq!(error.to_string(), "cannot read no/such.toml");
    }

    #[test]
    fn an_empty_file_is_a_synthetic_workload() {
        let file = WorkloadFile::from_toml("", "e.toml".as_ref()).unwrap();
        assert_eq!(file.run, RunSection::default());
        assert_eq!(file.workload.kind, WorkloadKind::Synthetic);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let run = RunSection {
            cache: Some(CacheMode::Prefix(0.25)),
            waves: Some(4),
            stall_gap: Some("200ms".to_owned()),
            ..RunSection::default()
        };
        let workload = WorkloadSpec {
            name: Some("n".to_owned()),
            lengths: Some(Lengths::Normal(0.1)),
            ..WorkloadSpec::default()
        };
        let file = WorkloadFile { run, workload };
        let text = toml::to_string(&file).unwrap();
        assert_eq!(
            WorkloadFile::from_toml(&text, "x.toml".as_ref()).unwrap(),
            file
        );
    }

    #[test]
    fn requests_follow_the_concurrency_but_never_fall_below_the_floor() {
        let run = RunSection {
            requests: Some(8),
            waves: Some(4),
            ..RunSection::default()
        };
        assert_eq!(run.requests_at(1), Some(8));
        assert_eq!(run.requests_at(16), Some(64));
        assert_eq!(RunSection::default().requests_at(4), None);
    }

    #[test]
    fn every_ready_file_loads_and_builds() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
        let mut seen = 0;
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "toml") {
                continue;
            }
            let file = WorkloadFile::from_path(&path).unwrap();
            let workload = Workload::build(&file.workload, 0, 1).unwrap();
            let cell = CellCoord {
                cell: 0,
                input_len: file.run.input_len.as_ref().map(|lens| lens[0]),
                output_len: file.run.output_len,
                cache: file.run.cache.unwrap_or(CacheMode::Workload),
            };
            workload.check_cell(&cell).unwrap();
            for concurrency in file.run.concurrency.iter().flatten() {
                let wanted = file.run.requests_at(*concurrency).unwrap();
                assert!(workload.shortfall(wanted).is_none(), "{}", path.display());
            }
            let plan = workload.request(&cell, linktax_records::Phase::Measured, 0);
            assert!(plan.unwrap().output_len.is_some(), "{}", path.display());
            seen += 1;
        }
        assert_eq!(seen, 8);
    }
}
