//! Runs plans and keeps what comes out of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use linktax_loadgen::{Event, LoadError, LoadPlan, Run, Secrets, Stop};
use linktax_mockserver::{MockConfig, MockHandle, MockServer, MockStats, RecordedRequest};
use linktax_records::{CacheMode, CellSpec, Load, Note, Outcome, Phase, RequestRecord};
use serde_json::Value;
use tokio::sync::watch;

/// A mock whose answers are short enough that a test of many requests takes no time worth mentioning.
pub(crate) fn quick() -> MockConfig {
    MockConfig {
        ttft_ms: 2.0,
        step_ms: 1.0,
        ..MockConfig::default()
    }
}

pub(crate) fn spawn(config: MockConfig) -> MockHandle {
    MockServer::spawn(config).unwrap()
}

/// `requests` requests of 16 + 6 tokens at a fixed concurrency.
pub(crate) fn closed(concurrency: u32, requests: u64) -> CellSpec {
    cell(Load::Concurrency(concurrency), Some(requests))
}

pub(crate) fn cell(load: Load, requests: Option<u64>) -> CellSpec {
    CellSpec {
        index: 0,
        workload: "synthetic".to_owned(),
        input_len: Some(16),
        output_len: Some(6),
        load,
        requests,
        duration_s: None,
        cache: CacheMode::Cold,
    }
}

/// A plan without warm-up and without sampling, so that every request that a server sees but one (the probe) is a
/// record.
pub(crate) fn plan(url: impl Into<String>, cell: CellSpec) -> LoadPlan {
    LoadPlan {
        num_warmups: Some(0),
        metrics_interval_s: None,
        ..LoadPlan::new(vec![url.into()], vec![cell])
    }
}

/// Requests that a server sees before the first one of a run with token-id prompts.
pub(crate) const PROBES: u64 = 1;

/// One cell and what became of it.
pub(crate) struct Ran {
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) cell: linktax_loadgen::CellRun,
    /// The phases in the order in which they began, with their announced lengths.
    pub(crate) phases: Vec<(Phase, Option<u64>)>,
    /// Of the pre-flight checks.
    pub(crate) notes: Vec<Note>,
}

impl Ran {
    pub(crate) fn phase(&self, phase: Phase) -> Vec<&RequestRecord> {
        self.records.iter().filter(|r| r.phase == phase).collect()
    }

    /// The measured records by index.
    pub(crate) fn measured(&self) -> Vec<&RequestRecord> {
        let mut records = self.phase(Phase::Measured);
        records.sort_by_key(|r| r.index);
        records
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.measured().iter().map(|r| r.outcome).collect()
    }

    /// Fails unless the cell is complete and holds exactly `requests` completed requests, each index once.
    #[track_caller]
    pub(crate) fn assert_all_completed(&self, requests: u64) {
        for r in &self.records {
            assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
            assert!(r.failure.is_none() && r.reads.is_consistent(), "{r:?}");
        }
        let indices: Vec<u64> = self.measured().iter().map(|r| r.index).collect();
        assert_eq!(indices, (0..requests).collect::<Vec<_>>());
        assert!(self.cell.complete, "{:?}", self.cell.notes);
    }

    pub(crate) fn note(&self, code: &str) -> Option<&str> {
        let all = self.notes.iter().chain(&self.cell.notes);
        all.filter(|n| n.code == code)
            .map(|n| n.message.as_str())
            .next()
    }
}

/// Runs the only cell of `plan`.
#[track_caller]
pub(crate) fn run(plan: LoadPlan) -> Ran {
    run_with(plan, &Secrets::default(), &mut |_, _| {})
}

/// Runs the only cell of `plan`; `see` gets every event on the calling thread, and the stop signal.
#[track_caller]
pub(crate) fn run_with(
    plan: LoadPlan,
    secrets: &Secrets,
    see: &mut dyn FnMut(&Event<'_>, &watch::Sender<Stop>),
) -> Ran {
    let run = Run::prepare(plan.clone(), secrets).unwrap();
    let (stop, _keep) = watch::channel(Stop::Run);
    run_cell(&run, &plan.cells[0], &stop, see)
}

pub(crate) fn run_cell(
    run: &Run,
    spec: &CellSpec,
    stop: &watch::Sender<Stop>,
    see: &mut dyn FnMut(&Event<'_>, &watch::Sender<Stop>),
) -> Ran {
    let mut records = Vec::new();
    let mut phases = Vec::new();
    let cell = run
        .run_cell(spec, 0, stop, &mut |event| {
            see(&event, stop);
            match event {
                Event::Record(record) => records.push(record.clone()),
                Event::Phase { phase, requests } => phases.push((phase, requests)),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    Ran {
        records,
        cell,
        phases,
        notes: run.notes(),
    }
}

/// What the pre-flight checks say against a plan, as it is printed.
#[track_caller]
pub(crate) fn refusal(plan: LoadPlan, secrets: &Secrets) -> String {
    let Err(error) = Run::prepare(plan, secrets) else {
        panic!("the plan was accepted")
    };
    let message = error.to_string();
    assert!(!matches!(error, LoadError::WorkerGone), "{message}");
    assert!(!message.trim().contains('\n'), "one line: {message}");
    message
}

/// The generation requests that are records (all but probes), in the order in which they arrived.
pub(crate) fn sent(stats: &MockStats) -> Vec<Sent> {
    let of_a_phase = |r: &&RecordedRequest| header(r, "x-request-id").is_some();
    let mut sent: Vec<Sent> = stats
        .recorded
        .iter()
        .filter(of_a_phase)
        .map(|r| Sent {
            id: header(r, "x-request-id").unwrap().to_owned(),
            connection: r.connection,
            body: serde_json::from_slice(&r.body).unwrap(),
            raw: r.clone(),
        })
        .collect();
    sent.sort_by_key(|s| s.raw.arrival);
    sent
}

/// A generation request as the mock server saw it.
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) connection: u64,
    pub(crate) body: Value,
    pub(crate) raw: RecordedRequest,
}

impl Sent {
    pub(crate) fn prompt(&self) -> Vec<u64> {
        let ids = self.body["prompt"].as_array().unwrap();
        ids.iter().map(|id| id.as_u64().unwrap()).collect()
    }
}

pub(crate) fn header<'r>(request: &'r RecordedRequest, name: &str) -> Option<&'r str> {
    let found = request.headers.iter().find(|(n, _)| n == name);
    found.map(|(_, value)| value.as_str())
}

pub(crate) fn connections(sent: &[Sent]) -> BTreeSet<u64> {
    sent.iter().map(|s| s.connection).collect()
}

/// Fails unless the reads split `events` (the tokens of each event, in order) as their event counts say: exact,
/// whether or not some events shared a read.
#[track_caller]
pub(crate) fn assert_reads_follow(record: &RequestRecord, events: &[u32]) {
    let mut rest = events;
    for (tokens, count) in record.reads.tokens.iter().zip(&record.reads.events) {
        let (these, later) = rest
            .split_at_checked(*count as usize)
            .unwrap_or_else(|| panic!("more events than {events:?}: {:?}", record.reads));
        assert_eq!(these.iter().sum::<u32>(), *tokens, "{:?}", record.reads);
        rest = later;
    }
    assert!(rest.is_empty(), "{rest:?} missing from {:?}", record.reads);
    assert!(record.reads.t_ns.is_sorted());
}
