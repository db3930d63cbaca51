use std::fmt::Write as _;
use std::io::Write as _;

use linktax_loadgen::LoadPlan;
use linktax_loadgen::workload::{WorkloadKind, WorkloadSpec};
use linktax_mockserver::{MockConfig, Mode};
use linktax_records::{CacheMode, Nanos};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{PROBES, closed, plan, run, spawn};

const STREAMS: u32 = 512;
const PROMPT_BYTES: usize = 400_000;
const LINE_BYTES: usize = 300_000;

#[test]
fn fr_12_hundreds_of_streams_with_large_prompts_and_lines() {
    // Client and server share this process, so each stream takes two descriptors.
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();

    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut prompt = String::new();
    while prompt.len() < PROMPT_BYTES {
        write!(prompt, "{:0>1000} ", prompt.len()).unwrap();
    }
    writeln!(file, r#"{{"prompt": "{prompt}"}}"#).unwrap();

    let server = spawn(MockConfig {
        mode: Mode::PerRequest,
        ttft_ms: 20.0,
        // Slower than in the report, so that the first stream is still there when the last prompt has been read,
        // also by an unoptimised server.
        step_ms: 60.0,
        pad_event_bytes: LINE_BYTES,
        prefix_cache: false,
        ..MockConfig::default()
    });
    let mut spec = closed(STREAMS, STREAMS.into());
    (spec.input_len, spec.output_len) = (None, Some(100));
    spec.cache = CacheMode::Workload;
    let ran = run(LoadPlan {
        workload: WorkloadSpec {
            kind: WorkloadKind::Jsonl,
            path: Some(file.path().to_owned()),
            repeat: Some(true),
            ..WorkloadSpec::default()
        },
        ..plan(server.base_url(), spec)
    });
    ran.assert_all_completed(STREAMS.into());
    let stats = server.shutdown();
    assert_eq!(stats.peak_streams, u64::from(STREAMS));
    assert_eq!(stats.requests, u64::from(STREAMS) + PROBES);
    let mut firsts: Vec<Nanos> = Vec::new();
    for r in ran.measured() {
        assert_eq!(r.output_tokens(), 100);
        let bytes: u64 = r.reads.bytes.iter().map(|&b| u64::from(b)).sum();
        assert!(bytes > LINE_BYTES as u64);
        firsts.extend(r.reads.first_token());
    }
    assert_eq!(firsts.len(), STREAMS as usize);
    firsts.sort_unstable();
    let mut sends: Vec<Nanos> = ran.records.iter().filter_map(|r| r.t_sent_ns).collect();
    sends.sort_unstable();
    // For people: server and client share the machine, and this is not an optimised build.
    println!(
        "sent within {}; first token p50 {} p99 {}; client lag p99 {:?} ms, cpu {:.0} %; server lag p99 {}",
        sends[sends.len() - 1] - sends[0],
        firsts[firsts.len() / 2],
        firsts[firsts.len() * 99 / 100],
        ran.cell.client.timer_lag_p99_ms,
        ran.cell.client.loop_cpu_pct,
        stats.lag.quantile(0.99),
    );
}
