//! `linktax bench`: the plan, the run, its directory and its table.

pub(crate) mod args;
mod environment;
pub(crate) mod failure;
mod grid;
mod origin;
pub(crate) mod plan;
mod progress;
mod record;
mod redact;
mod vllm_json;

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use linktax_loadgen::workload::WorkloadError;
use linktax_loadgen::{LoadError, Run, Stop, unix_now_ns};
use linktax_mockserver::{MockHandle, MockServer};
use linktax_records::{
    CellEntry, CellStatus, GpuCount, RunManifest, RunStatus, SCHEMA_VERSION, ToolInfo,
    VerdictStatus,
};
use linktax_store::RunWriter;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::{output, table};
use args::BenchArgs;
use plan::BenchPlan;
use redact::Redactor;
use vllm_json::VllmJson;

/// Runs the command.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<Exit> {
    let resumed = match (&args.out, args.resume) {
        (Some(dir), true) => Some(RunWriter::resume(dir)?),
        _ => None,
    };
    if let Some(writer) = resumed.as_ref().filter(|w| is_complete(w.manifest())) {
        output::note("every cell of this run is complete: nothing is left to run");
        return finish(&args, writer);
    }
    let mut plan = match &resumed {
        Some(writer) => serde_json::from_value(writer.manifest().plan.clone())
            .context("the plan in run.json cannot be read by this version of linktax")?,
        None => BenchPlan::from_args(&args)?,
    };
    let secrets = plan.secrets(&args)?;
    let mut vllm_json = args.vllm_json.as_deref().map(VllmJson::open).transpose()?;
    let mock = start_mock(&mut plan)?;
    let redactor = Redactor::new(&secrets);
    let run =
        Run::prepare(plan.load.clone(), &secrets).map_err(|e| refusal(&args, &redactor, e))?;
    // Until here there is nothing to lose, and Ctrl-C ends the process.
    let stop = watch::Sender::new(Stop::Run);
    watch_signals(stop.clone())?;
    let mut writer = match resumed {
        Some(writer) => writer,
        None => {
            let dir = args.out.clone().unwrap_or_else(|| default_dir(&plan.arm));
            RunWriter::create(&dir, manifest(&args, &plan, &run)?)?
        }
    };
    if let Some(file) = &mut vllm_json {
        file.begin(&writer, args.save_detailed)?;
    }
    if !args.quiet {
        output::note(&format!("run directory: {}", writer.dir().display()));
    }
    let mut bench = record::Bench {
        args: &args,
        plan: &plan,
        run: &run,
        writer: &mut writer,
        stop: &stop,
        redactor: &redactor,
        vllm_json,
    };
    bench.run_cells()?;
    drop(mock);
    finish(&args, &writer)
}

/// As text: a server may repeat the key in its refusal. What is wrong with a workload is said with its file.
fn refusal(args: &BenchArgs, redactor: &Redactor, error: LoadError) -> anyhow::Error {
    let of_the_file = matches!(
        error,
        LoadError::Workload(WorkloadError::Setting { .. } | WorkloadError::NotForKind { .. })
    );
    let text = redactor.text(&format!("{:#}", anyhow::Error::from(error)));
    match args.workload.as_ref().filter(|_| of_the_file) {
        Some(path) => anyhow!("{}: {text}", path.display()),
        None => anyhow!(text),
    }
}

fn is_complete(manifest: &RunManifest) -> bool {
    manifest
        .cells
        .iter()
        .all(|c| c.status == CellStatus::Complete)
}

/// Starts the built-in server and points the plan at it.
fn start_mock(plan: &mut BenchPlan) -> anyhow::Result<Option<MockHandle>> {
    let Some(config) = &plan.mock else {
        return Ok(None);
    };
    let handle = MockServer::spawn(config.clone()).context("the built-in mock server")?;
    plan.load.base_urls = vec![handle.base_url()];
    Ok(Some(handle))
}

/// Ctrl-C and SIGTERM end the run; what was measured is kept.
fn watch_signals(stop: watch::Sender<Stop>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let (Ok(mut interrupt), Ok(mut terminate)) = (
                    signal(SignalKind::interrupt()),
                    signal(SignalKind::terminate()),
                ) else {
                    return;
                };
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    stop.send_replace(Stop::All);
                }
            });
        })?;
    Ok(())
}

fn default_dir(arm: &str) -> PathBuf {
    let safe: String = arm
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    PathBuf::from(format!(
        "runs/{safe}-{}",
        environment::utc_stamp(unix_now_ns())
    ))
}

fn manifest(args: &BenchArgs, plan: &BenchPlan, run: &Run) -> anyhow::Result<RunManifest> {
    let gpus = match (plan.gpus, run.gpus()) {
        (Some(count), _) => (Some(count), "flag"),
        (None, Some(count)) => (Some(count), "server"),
        (None, None) => (None, "unknown"),
    };
    Ok(RunManifest {
        schema_version: SCHEMA_VERSION,
        tool: ToolInfo {
            name: "linktax".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        status: RunStatus::Incomplete,
        command: environment::command_line(&args.header),
        arm: plan.arm.clone(),
        started_unix_ns: unix_now_ns(),
        finished_unix_ns: None,
        seed: plan.load.seed,
        nonce: format!("{:016x}", plan.load.nonce),
        gpus: GpuCount {
            count: gpus.0,
            source: gpus.1.to_owned(),
        },
        plan: serde_json::to_value(plan)?,
        environment: environment::describe(),
        servers: run.servers().to_vec(),
        percentile_method: linktax_metrics::PERCENTILE_METHOD.to_owned(),
        cells: plan
            .load
            .cells
            .iter()
            .map(|spec| CellEntry {
                spec: spec.clone(),
                status: CellStatus::Pending,
                attempt: 0,
                started_unix_ns: None,
                results: None,
                server: None,
                client: None,
                verdict: None,
            })
            .collect(),
        notes: run.notes(),
    })
}

/// Prints the result and says whether it is clean.
fn finish(args: &BenchArgs, writer: &RunWriter) -> anyhow::Result<Exit> {
    let manifest = writer.manifest();
    if args.json {
        output::print(&serde_json::to_string_pretty(manifest)?)?;
    } else {
        output::print(&table::render(manifest, output::width()))?;
        output::print(&format!("run directory: {}", writer.dir().display()))?;
    }
    Ok(exit(manifest))
}

/// Clean means that every cell ran to its end and is valid.
pub(crate) fn exit(manifest: &RunManifest) -> Exit {
    let clean = manifest.cells.iter().all(|c| {
        c.status == CellStatus::Complete
            && c.verdict
                .as_ref()
                .is_some_and(|v| v.status == VerdictStatus::Valid)
    });
    if clean { Exit::Clean } else { Exit::NotClean }
}

/// Reasons against a cell that only the run itself could see; records alone do not tell.
pub(crate) fn is_run_time_reason(code: &str) -> bool {
    matches!(
        code,
        "preparation_failed"
            | "server_gone"
            | "stopped"
            | "fewer_requests"
            | "profile_failed"
            | "profile_not_taken"
    )
}
