//! The generator itself: determinism, a truth that agrees with itself, and files shaped like real exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linktax_trace::TraceError;
use linktax_trace::synth::{self, Flavour, Spec, Truth, TruthVerdict};
use proptest::prelude::*;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::exports::{runtime, unpacked};

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
    fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        assert!(self.dir.path().exists());
        query(&self.path, sql)
    }

    fn tables(&self) -> BTreeSet<String> {
        self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            .into_iter()
            .map(|mut row| row.remove(0))
            .collect()
    }
}

fn query(path: &Path, sql: &str) -> Vec<Vec<String>> {
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

/// `name! …` per table, as in the reference of the schema.
fn columns(path: &Path) -> BTreeMap<String, String> {
    query(
        path,
        "SELECT m.name, group_concat(p.name || iif(p.\"notnull\", '!', '') || iif(p.pk, '*', '') \
         || iif(p.type = 'TEXT', ':T', '') || iif(p.type = 'REAL', ':R', ''), ' ') \
         FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' GROUP BY m.name",
    )
    .into_iter()
    .map(|row| (row[0].clone(), row[1].clone()))
    .collect()
}

const SMALL: &str =
    "seed = 4\nphase = [{ steps = 3, concurrency = 2 }]\n[model]\nattention_layers = 2\n";

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
fn each_flavour_has_the_columns_of_its_version() {
    let kernel = "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid demangledName! \
                  shortName! mangledName launchType cacheConfig registersPerThread! gridX! gridY! gridZ! blockX! \
                  blockY! blockZ! staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! \
                  gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig";
    let more = " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ \
                clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage";
    let expected = |flavour| match flavour {
        Flavour::V2021 => kernel
            .split(' ')
            .filter(|c| !["greenContextId", "graphNodeId", "sharedMemoryLimitConfig"].contains(c))
            .map(|c| format!("{}!", c.trim_end_matches('!')))
            .collect::<Vec<_>>()
            .join(" "),
        Flavour::V3_16_1 | Flavour::V3_20_3 => kernel.to_owned(),
        Flavour::V3_24_14 => format!("{kernel}{more}"),
        _ => format!("{kernel}{more} tensorSizeMinusOneElements!:T"),
    };
    for flavour in Flavour::ALL {
        let mut spec = spec(SMALL);
        spec.file.flavour = flavour;
        let columns = columns(&Synthetic::new(&spec).path);
        let squeezed = expected(flavour)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            columns["CUPTI_ACTIVITY_KIND_KERNEL"], squeezed,
            "{flavour:?}"
        );
        let marks = &columns["NVTX_EVENTS"];
        assert_eq!(marks.starts_with("eventId!*"), flavour == Flavour::V3_28_1);
    }
}

#[test]
fn tables_of_recorded_versions_equal_the_recordings() {
    for (flavour, captures) in [
        (
            Flavour::V3_20_3,
            &[
                "vllm-qwen3-4b-decode-c16",
                "vllm-qwen3-4b-decode-c16-graph-level",
            ][..],
        ),
        (Flavour::V3_25_0, &["nsys-ai-mfu_2gpu_before"][..]),
    ] {
        let mut spec = spec(SMALL);
        spec.file.flavour = flavour;
        spec.file.eager_tables = true;
        let ours = columns(&Synthetic::new(&spec).path);
        for capture in captures {
            let (_dir, path) = unpacked(capture);
            let real = columns(&path);
            let both: Vec<&String> = real.keys().filter(|t| ours.contains_key(*t)).collect();
            assert!(both.len() > 15, "{both:?}");
            for table in both {
                assert_eq!(ours[table], real[table], "{flavour:?} {table}");
            }
        }
    }
}

#[test]
fn tables_come_and_go_as_asked() {
    let lazy = Synthetic::new(&spec(SMALL));
    assert!(!lazy.tables().contains("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"));
    let eager = Synthetic::new(&spec(&format!("{SMALL}[file]\neager_tables = true\n")));
    assert!(eager.tables().contains("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"));
    let without = spec(&format!(
        "{SMALL}[file]\nwithout_tables = [\"NVTX_EVENTS\", \"CUPTI_ACTIVITY_KIND_KERNEL\"]\n"
    ));
    let without = Synthetic::new(&without).tables();
    assert!(!without.contains("NVTX_EVENTS") && !without.contains("CUPTI_ACTIVITY_KIND_KERNEL"));
    assert!(without.contains("StringIds"));
}

#[test]
fn no_index_and_the_page_size_of_real_exports() {
    let made = Synthetic::new(&spec(SMALL));
    assert!(
        made.rows("SELECT name FROM sqlite_master WHERE type = 'index'")
            .is_empty()
    );
    assert_eq!(
        made.rows("SELECT page_size || '' FROM pragma_page_size"),
        [["4096"]]
    );
}

#[test]
fn ids_collide_between_processes_and_one_replay_owns_its_kernels() {
    let made = Synthetic::new(&named("colliding"));
    let shared = made.rows(
        "SELECT count(*) || '' FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL \
         GROUP BY correlationId HAVING count(DISTINCT globalPid) = 2)",
    );
    assert_ne!(shared, [["0"]]);
    let devices = made.rows("SELECT DISTINCT deviceId || '' FROM CUPTI_ACTIVITY_KIND_KERNEL");
    assert_eq!(devices, [["0"]]);
    let negative =
        made.rows("SELECT count(*) || '' FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >= 0");
    assert_eq!(negative, [["0"]]);
    // 10 steps, two processes: 20 replays of 50 to 60 kernels, each with one launch.
    let replays = made.rows(
        "SELECT count(*) || '' FROM (SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL \
         GROUP BY globalPid, correlationId HAVING count(*) > 40)",
    );
    assert_eq!(replays, [["20"]]);
}

#[test]
fn launches_precede_their_kernels_and_marks_lie_before_the_gpu() {
    let made = Synthetic::new(&named("async"));
    let late = made.rows(
        "SELECT count(*) || '' FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
         ON k.correlationId = r.correlationId AND k.globalPid = (r.globalTid & ~0xFFFFFF) AND k.start < r.start",
    );
    assert_eq!(late, [["0"]]);
    let step = &made.truth.lanes[0].steps[5];
    let ends = made.rows(
        "SELECT \"end\" || '' FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId \
         WHERE s.value LIKE 'execute_context%' AND n.globalTid & 0xFFFFFF = 4001 ORDER BY start",
    );
    let end: i64 = ends[5][0].parse().unwrap();
    assert!(
        end < step.start_ns,
        "the range of step 5 ends before its first kernel"
    );
}

#[test]
fn secrets_are_planted_where_exports_keep_them() {
    let spec = named("secrets");
    let made = Synthetic::new(&spec);
    let secret = &spec.secrets[0];
    for place in [
        "META_DATA_CAPTURE WHERE value",
        "META_DATA_EXPORT WHERE value",
        "TARGET_INFO_SYSTEM_ENV WHERE value",
        "DIAGNOSTIC_EVENT WHERE text",
        "ProcessStreams p JOIN StringIds s ON s.id = p.contentId WHERE s.value",
        "ANALYSIS_FILE a JOIN StringIds s ON s.id = a.contentId WHERE s.value",
    ] {
        let hits = made.rows(&format!("SELECT 'x' FROM {place} LIKE '%{secret}%'"));
        assert!(!hits.is_empty(), "{place}");
    }
    assert_eq!(made.truth.secrets, spec.secrets);
}

#[test]
fn repetition_keeps_steps_apart_and_ids_unique() {
    let mut wanted = spec(SMALL);
    wanted.file.kernel_rows = 1_000;
    let made = Synthetic::new(&wanted);
    let rows = made.rows("SELECT count(*) || '' FROM CUPTI_ACTIVITY_KIND_KERNEL");
    assert_eq!(rows, [[made.truth.kernel_rows.to_string()]]);
    assert!((1_000..1_300).contains(&made.truth.kernel_rows));
    let lane = &made.truth.lanes[0];
    let (first, last) = (&lane.steps[0], &lane.steps[2]);
    assert_eq!(last.end_ns, first.start_ns + made.truth.period_ns as i64);
    let reused = made.rows(
        "SELECT 'x' FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY globalTid, correlationId, nameId, eventClass \
         HAVING count(*) > 1",
    );
    assert!(reused.is_empty());
}

#[test]
fn a_truncated_file_is_shorter_than_its_header_says() {
    let mut wanted = spec(SMALL);
    let whole = Synthetic::new(&wanted);
    wanted.file.truncate_to = Some(0.5);
    let cut = Synthetic::new(&wanted);
    let size = |made: &Synthetic| std::fs::metadata(&made.path).unwrap().len();
    assert_eq!(size(&cut), size(&whole) / 2);
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
