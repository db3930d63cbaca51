//! What the tests share: a scratch directory, a mock server in this process, and the binary run in that directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use linktax_mockserver::{MockConfig, MockHandle, MockServer, Mode};
use linktax_records::{CellEntry, RunManifest};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// A server that answers within milliseconds.
pub(crate) fn fast() -> MockConfig {
    MockConfig {
        ttft_ms: 5.0,
        step_ms: 2.0,
        ..MockConfig::default()
    }
}

/// A fast engine with a shared step.
pub(crate) fn engine() -> MockConfig {
    MockConfig {
        mode: Mode::Engine,
        step_ms: 2.0,
        prefill_us_per_token: 2.0,
        ..MockConfig::default()
    }
}

/// A small cell against [`fast`].
pub(crate) const SMALL: [&str; 10] = [
    "--concurrency",
    "2",
    "--input-len",
    "64",
    "--output-len",
    "8",
    "--requests",
    "8",
    "--num-warmups",
    "0",
];

/// What a run of the binary left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Bad usage: exit code 2, nothing on stdout, one line on stderr, which holds all these words.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!(
            self.code,
            Some(2),
            "stdout {}\nstderr {}",
            self.out,
            self.err
        );
        assert_eq!(self.out, "");
        assert_eq!(
            self.err.lines().count(),
            1,
            "more than one line: {}",
            self.err
        );
        assert!(self.err.starts_with("error: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {}", self.err);
        }
    }

    /// The exit code must follow from the verdicts; returns the reasons of every cell, but those that only say that
    /// the machine running the tests was busy.
    #[track_caller]
    pub(crate) fn reasons(&self, run: &RunManifest) -> Vec<Vec<String>> {
        let all: Vec<Vec<String>> = run.cells.iter().map(codes).collect();
        let valid = all.iter().all(Vec::is_empty);
        assert_eq!(self.code, Some(i32::from(!valid)), "{all:?}\n{}", self.err);
        all.into_iter()
            .map(|cell| cell.into_iter().filter(|c| c != "client_limited").collect())
            .collect()
    }
}

fn codes(cell: &CellEntry) -> Vec<String> {
    let verdict = cell.verdict.as_ref();
    match verdict {
        Some(verdict) => verdict.reasons.iter().map(|r| r.code.clone()).collect(),
        None => vec!["no verdict".to_owned()],
    }
}

/// A scratch directory that the binary runs in.
pub(crate) struct Rig {
    dir: TempDir,
    mock: Option<MockHandle>,
}

impl Rig {
    /// Without a server.
    pub(crate) fn bare() -> Rig {
        Rig {
            dir: TempDir::new().unwrap(),
            mock: None,
        }
    }

    /// With a mock server on a free port.
    pub(crate) fn new(config: MockConfig) -> Rig {
        Rig {
            mock: Some(MockServer::spawn(config).unwrap()),
            ..Rig::bare()
        }
    }

    /// Takes the server away.
    pub(crate) fn stop_server(&mut self) {
        self.mock = None;
    }

    pub(crate) fn url(&self) -> String {
        self.mock.as_ref().unwrap().base_url()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linktax"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("OPENAI_API_KEY")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// `linktax bench --base-url … --out run` with these flags.
    pub(crate) fn bench_args<'a>(
        &self,
        out: &'a str,
        flags: &[&'a str],
        url: &'a str,
    ) -> Vec<&'a str> {
        let mut args = vec!["bench", "--base-url", url, "--out", out, "--quiet"];
        args.extend(flags);
        args
    }

    pub(crate) fn bench(&self, out: &str, flags: &[&str]) -> Ran {
        let url = self.url();
        self.run(&self.bench_args(out, flags, &url))
    }

    pub(crate) fn manifest(&self, out: &str) -> RunManifest {
        serde_json::from_value(self.run_json(out)).unwrap()
    }

    pub(crate) fn run_json(&self, out: &str) -> Value {
        serde_json::from_str(&self.read(out, "run.json")).unwrap()
    }

    pub(crate) fn read(&self, out: &str, name: &str) -> String {
        std::fs::read_to_string(self.path(out).join(name)).unwrap()
    }

    /// Everything in the scratch directory, by relative path.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut todo = vec![self.dir.path().to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    todo.push(path.clone());
                }
                found.push(path.strip_prefix(self.dir.path()).unwrap().to_owned());
            }
        }
        found
    }
}

/// The numbers of a cell.
pub(crate) fn results(run: &RunManifest, cell: usize) -> &Map<String, Value> {
    run.cells[cell].results.as_ref().unwrap()
}

/// One number of a cell.
#[track_caller]
pub(crate) fn number(run: &RunManifest, cell: usize, key: &str) -> f64 {
    let value = &results(run, cell)[key];
    value.as_f64().unwrap_or_else(|| panic!("{key} is {value}"))
}

/// Waits until something holds; a test that waits in vain fails here.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child that does not outlive its test.
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The repository's root: for its documents and schemas.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
