//! The generator itself: determinism, a truth that agrees with itself, and files shaped like real exports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use linktax_trace::TraceError;
use linktax_trace::synth::{self, Spec, Truth, TruthVerdict};
use proptest::prelude::*;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::exports::runtime;

/// The specifications that ship with the crate.
pub(crate) fn shipped() -> Vec<(String, Spec)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
    let mut specs: Vec<(String, Spec)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, Spec::from_toml(&text, &path).unwrap())
        })
        .collect();
    specs.sort_by(|a, b| a.0.cmp(&b.0));
    specs
}

pub(crate) fn spec(text: &str) -> Spec {
    Spec::from_toml(text, Path::new("spec.toml")).unwrap()
}

/// A shipped specification by name.
pub(crate) fn named(name: &str) -> Spec {
    shipped()
        .into_iter()
        .find(|(n, _)| n == name)
        .unwrap_or_else(|| panic!("no specification {name}"))
        .1
}

/// A synthetic export in a directory that goes with it.
pub(crate) struct Synthetic {
    dir: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) truth: Truth,
}

impl Synthetic {
    pub(crate) fn new(spec: &Spec) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("synthetic.sqlite");
        let truth = synth::write(spec, &path).unwrap();
        Synthetic { dir, path, truth }
    }

    /// Rows of a query, all cells as SQL literals.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        assert!(self.dir.path().exists());
        query(&self.path, sql)
    }

    pub(crate) fn tables(&self) -> BTreeSet<String> {
        self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            .into_iter()
            .map(|mut row| row.remove(0))
            .collect()
    }
}

pub(crate) fn query(path: &Path, sql: &str) -> Vec<Vec<String>> {
    runtime().block_on(async {
        let mut db = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .connect()
            .await
            .unwrap();
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_all(&mut db)
            .await
            .unwrap();
        let cells = rows
            .iter()
            .map(|row| {
                (0..row.len())
                    .map(|i| {
                        row.get_unchecked::<Option<String>, _>(i)
                            .unwrap_or_default()
                    })
                    .collect()
            })
            .collect();
        db.close().await.unwrap();
        cells
    })
}

#[test]
fn every_shipped_specification_has_a_truth_that_agrees_with_itself() {
    for (name, mut spec) in shipped() {
        // The long ones say nothing more about consistency.
        spec.phase[0].steps = spec.phase[0].steps.min(6);
        spec.file.kernel_rows = 0;
        let made = Synthetic::new(&spec);
        check(&name, &spec, &made.truth);
    }
}

/// Every law that holds for any truth.
fn check(name: &str, spec: &Spec, truth: &Truth) {
    assert!(!truth.lanes.is_empty(), "{name}");
    for lane in &truth.lanes {
        assert!(!lane.steps.is_empty(), "{name}");
        for pair in lane.steps.windows(2) {
            assert_eq!(pair[0].end_ns, pair[1].start_ns, "{name}");
        }
        for step in &lane.steps {
            let parts = step.compute_ns
                + step.exposed_comm_ns
                + step.copy_ns
                + step.opaque_ns
                + step.idle_ns;
            assert_eq!(parts, step.length_ns(), "{name} {}", step.index);
            let together: u64 = step.together_ns.values().sum();
            assert_eq!(together, step.length_ns(), "{name} {}", step.index);
            let idle = step.together_ns.get("idle").copied().unwrap_or(0);
            assert_eq!(idle, step.idle_ns, "{name} {}", step.index);
            assert!(step.exposed_comm_ns <= step.comm_ns);
            for (class, union) in &step.class_union_ns {
                assert!(*union <= step.class_sum_ns[class]);
                let shared: u64 = step
                    .together_ns
                    .iter()
                    .filter(|(key, _)| key.split('+').any(|c| c == class))
                    .map(|(_, ns)| ns)
                    .sum();
                assert_eq!(shared, *union, "{name} {class}");
            }
        }
    }
    for collective in &truth.collectives {
        assert_eq!(collective.wait_ns.len(), spec.parallel.tensor as usize);
        assert_eq!(
            collective.wait_ns.iter().min(),
            Some(&0),
            "somebody is last"
        );
    }
    if truth.verdict == TruthVerdict::Splittable && truth.ranks_align {
        let waits = |rank: usize| -> u64 {
            let lane = &truth.lanes[rank];
            lane.steps.iter().map(|s| s.wait_ns + s.service_ns).sum()
        };
        for (rank, lane) in truth.lanes.iter().enumerate() {
            let comm: u64 = lane
                .steps
                .iter()
                .flat_map(|s| &s.class_sum_ns)
                .filter(|(class, _)| class.starts_with("comm"))
                .map(|(_, ns)| ns)
                .sum();
            assert_eq!(
                waits(rank),
                comm,
                "{name}: wait and service are all there is"
            );
        }
    }
}

#[test]
fn the_same_specification_gives_the_same_rows_and_truth() {
    for name in ["tp8", "hostile-file"] {
        let spec = named(name);
        let (one, two) = (Synthetic::new(&spec), Synthetic::new(&spec));
        assert_eq!(
            serde_json::to_string(&one.truth).unwrap(),
            serde_json::to_string(&two.truth).unwrap()
        );
        assert_eq!(one.tables(), two.tables());
        for table in one.tables() {
            let all = format!("SELECT * FROM \"{table}\"");
            assert_eq!(one.rows(&all), two.rows(&all), "{name} {table}");
        }
        let other = Synthetic::new(&Spec { seed: 77, ..spec });
        assert_ne!(one.truth, other.truth, "the seed matters");
    }
}

#[test]
fn the_totals_of_a_step_are_those_of_the_specification() {
    for (name, attention, comm) in [
        ("replica-c2", 8_000_000, 5_600_000),
        ("replica-c8", 33_000_000, 13_100_000),
    ] {
        let mut spec = named(name);
        assert_eq!(spec.steps(), 80);
        spec.phase[0].steps = 3;
        let truth = Synthetic::new(&spec).truth;
        for step in truth.lanes.iter().flat_map(|lane| &lane.steps) {
            let sum = |class: &str| step.class_sum_ns[class];
            assert_eq!(sum("linear") + sum("linear.splitk_reduce"), 30_000_000);
            assert_eq!(sum("attention"), attention);
            assert_eq!(sum("comm.nccl"), comm);
            assert_eq!((step.all_reduces, step.all_gathers), (138, 7));
            assert_eq!(step.exposed_comm_ns, comm, "nothing overlaps");
            // The last step ends with its last operation, without the pause before a next one.
            let share = comm as f64 / step.length_ns() as f64;
            assert!((0.11..0.152).contains(&share), "{share}");
        }
    }
}

#[test]
fn bad_specifications_say_what_is_wrong() {
    let error = |text: &str| Spec::from_toml(text, Path::new("bad.toml")).unwrap_err();
    let source = |e: &TraceError| std::error::Error::source(e).map(|s| s.to_string()).unwrap();
    let unknown = error("phase = [{ steps = 1, kind = \"decoding\" }]");
    assert!(
        source(&unknown).contains("`decode`, `mixed`, `prefill`"),
        "{}",
        source(&unknown)
    );
    let key = error("phase = [{ steps = 1 }]\n[model]\nlayer = 3\n");
    assert!(
        source(&key).contains("attention_layers"),
        "{}",
        source(&key)
    );
    for (text, words) in [
        ("phase = []", "at least one step"),
        (
            "phase = [{ steps = 1 }]\n[parallel]\ntensor = 9\n",
            "tensor must be 1 to 8",
        ),
        (
            "phase = [{ steps = 1, kind = \"mixed\" }]",
            "need prefill_tokens",
        ),
        (
            "phase = [{ steps = 1 }]\n[skew]\nstraggler = 2\n",
            "skew.straggler",
        ),
        (
            "phase = [{ steps = 1 }]\n[gaps]\njitter = nan\n",
            "gaps.jitter",
        ),
    ] {
        let message = error(text).to_string();
        assert!(
            message.starts_with("bad.toml: ") && message.contains(words),
            "{message}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let moe = spec("phase = [{ steps = 1, time_ns = { moe = 5 } }]");
    let message = synth::write(&moe, &dir.path().join("x.sqlite"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("time_ns.moe"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_mixture_of_options_has_a_consistent_truth(
        seed: u64,
        tensor in 1u32..4,
        mtp in 0u32..3,
        overlap in prop::sample::select(vec!["none", "partial", "nested", "identical"]),
        skew in prop::sample::select(vec!["none", "fixed", "lognormal"]),
        mode in prop::sample::select(vec!["node", "piecewise", "eager", "graph", "mixed_level"]),
        pdl in 0u64..3_000,
        offset in -15_000i64..15_000,
    ) {
        let text = format!(
            "seed = {}\nphase = [{{ steps = 3, concurrency = 2 }}]\n[model]\nattention_layers = 1\nssm_layers = 1\n\
             mtp = {mtp}\n[parallel]\ntensor = {tensor}\n[overlap]\nkind = \"{overlap}\"\npdl_ns = {pdl}\n\
             [skew]\nkind = \"{skew}\"\ndelay_ns = 6_000\n[graph]\nmode = \"{mode}\"\n\
             [clock]\noffset_ns = [0, {offset}]\ndrift_ns_per_s = [0, -900]\n[gaps]\njitter = 0.5\n",
            seed >> 1,
        );
        let spec = spec(&text);
        let made = Synthetic::new(&spec);
        check(&text, &spec, &made.truth);
    }
}

#[test]
fn the_specifications_of_the_guide_are_valid() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/trace-synth.md");
    let text = std::fs::read_to_string(&guide).unwrap();
    let blocks: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        let mut spec = Spec::from_toml(block, &guide).unwrap();
        spec.phase[0].steps = spec.phase[0].steps.min(4);
        Synthetic::new(&spec);
    }
}
