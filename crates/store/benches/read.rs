//! How fast the records of a run are read back, in bytes of `requests.jsonl` a second.
//!
//! `LINKTAX_BENCH_MB=300 cargo bench -p linktax-store` sizes the file (64 MB unless told); the peak
//! memory of the process is printed at the end, where the system tells it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a benchmark: no public API, and a failure may stop it"
)]

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linktax_records::{RecordSource, RequestRecord, RunManifest};
use linktax_store::{REQUESTS_FILE, RUN_FILE, RunReader};

const MANIFEST: &str = r#"{"schema_version":1,"tool":{"name":"linktax","version":"0"},"status":"complete",
"command":[],"arm":"a","started_unix_ns":0,"seed":0,"nonce":"0","gpus":{"count":1,"source":"flag"},"plan":null,
"environment":{},"servers":[],"percentile_method":"linear","cells":[
{"index":0,"workload":"w","input_len":1,"output_len":128,"load":{"concurrency":1},"requests":1,"duration_s":null,
"cache":"cold","status":"complete"},
{"index":1,"workload":"w","input_len":1,"output_len":128,"load":{"concurrency":2},"requests":1,"duration_s":null,
"cache":"cold","status":"complete"}]}"#;

/// A request of 128 tokens, one read each, as the load generator writes it.
fn line(cell: usize) -> String {
    let array = |f: &dyn Fn(u64) -> String| (0..128).map(f).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"{{"cell":{cell},"attempt":0,"index":5,"phase":"measured","replica":0,"request_id":"lt-00c0ffee-5",
"input_len":1024,"output_len":128,"t_sched_ns":1000000,"t_sent_ns":1010000,"t_headers_ns":61000000,
"t_done_ns":1300000000,"reconnected":false,"outcome":"completed","finish_reason":"length","done_marker":true,
"usage":{{"prompt_tokens":1024,"completion_tokens":128}},"token_source":"token_ids","keepalives":0,
"socket_reads":129,"reads":{{"t_ns":[{}],"tokens":[{}],"class":[{}],"bytes":[{}],"events":[{}]}}}}"#,
        array(&|k| (51_000_000 + 9_654_321 * k).to_string()),
        array(&|_| "1".into()),
        array(&|_| "\"content\"".into()),
        array(&|k| (240 + k % 7).to_string()),
        array(&|_| "1".into()),
    );
    let line = text.replace('\n', "") + "\n";
    let _: RequestRecord = serde_json::from_str(&line).unwrap();
    line
}

fn write_run(dir: &Path, megabytes: usize) -> u64 {
    use std::io::Write;
    let _: RunManifest = serde_json::from_str(MANIFEST).unwrap();
    fs::write(dir.join(RUN_FILE), MANIFEST).unwrap();
    let lines = [line(0), line(1)];
    let count = megabytes * 1_000_000 / lines[0].len();
    let file = fs::File::create(dir.join(REQUESTS_FILE)).unwrap();
    let mut out = std::io::BufWriter::new(file);
    // One line in eight is of the other cell, so that the index has spans to tell apart.
    for i in 0..count {
        out.write_all(lines[usize::from(i % 8 == 7)].as_bytes())
            .unwrap();
    }
    out.flush().unwrap();
    drop(out);
    fs::metadata(dir.join(REQUESTS_FILE)).unwrap().len()
}

fn read(c: &mut Criterion) {
    let megabytes = std::env::var("LINKTAX_BENCH_MB").map_or(64, |v| v.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let bytes = write_run(dir.path(), megabytes);
    let mut group = c.benchmark_group("read");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("open", |b| {
        b.iter(|| RunReader::open(black_box(dir.path())).unwrap());
    });
    let run = RunReader::open(dir.path()).unwrap();
    let records = run.cell_records(0);
    group.throughput(Throughput::Bytes(records.bytes()));
    group.bench_function("scan", |b| {
        b.iter(|| {
            let mut tokens = 0;
            records.scan(&mut |r| tokens += r.output_tokens()).unwrap();
            tokens
        });
    });
    group.finish();
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find(|l| l.starts_with("VmHWM:"));
        eprintln!("{}", peak.unwrap_or_default());
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
