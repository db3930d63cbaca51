//! The files of the generator: tables and columns of every version, ids, marks, secrets, repetition.

use std::collections::BTreeMap;
use std::path::Path;

use linktax_trace::synth::Flavour;

use crate::exports::unpacked;
use crate::synth::{Synthetic, named, query, spec};

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
