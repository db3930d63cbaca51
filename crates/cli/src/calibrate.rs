//! `linktax calibrate`: how far this client's own numbers can be trusted on this machine.
//!
//! The mock server runs as a process of its own, on a CPU of its own where there are two, with a known time to
//! first token and step. Its chunks carry the time of their sending on the same monotonic clock, so the delay of
//! every single event is known without trusting the server's timers.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table};
use linktax_loadgen::{Event, LoadPlan, Run, Secrets, Stop};
use linktax_metrics::{Options, StallGap, summarize};
use linktax_records::{CacheMode, CellSpec, ClientStats, Load, Outcome, Phase, RequestRecord};
use serde::Serialize;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::number::{number, whole, whole32};
use crate::{affinity, output};

/// Largest bias of the median TTFT that is called trustworthy.
const MAX_TTFT_BIAS_MS: f64 = 1.0;

/// Largest 99th percentile of timer and delivery lag that is called trustworthy.
const MAX_LAG_MS: f64 = 5.0;

const EXAMPLES: &str = "\
Examples:
  linktax calibrate
  linktax calibrate --concurrency 1,64,256 --json

Exit code 1 if the client is not trustworthy even at the smallest concurrency.";

/// Arguments of `linktax calibrate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CalibrateArgs {
    /// Concurrencies to try.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "C,…",
        default_value = "1,16,128,512",
        value_parser = whole32::<1, 100_000>
    )]
    concurrency: Vec<u32>,
    /// True time to first token, in ms.
    #[arg(long, value_name = "MS", default_value_t = 50.0, value_parser = number)]
    ttft_ms: f64,
    /// True time between tokens, in ms.
    #[arg(long, value_name = "MS", default_value_t = 10.0, value_parser = number)]
    step_ms: f64,
    /// Tokens a request.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole::<2, 1_000_000>)]
    output_len: u64,
    /// Receive threads.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole32::<1, 64>)]
    threads: u32,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// What the client did at one concurrency.
#[derive(Clone, Debug, Serialize)]
struct Row {
    concurrency: u32,
    requests: u64,
    failed: u64,
    /// Median TTFT minus the truth.
    ttft_bias_p50_ms: Option<f64>,
    /// 99th percentile of TTFT minus the truth.
    ttft_bias_p99_ms: Option<f64>,
    /// Read time minus send time of each token event.
    delivery_lag_p50_ms: Option<f64>,
    delivery_lag_p99_ms: Option<f64>,
    output_throughput: Option<f64>,
    /// What the truth allows: C requests at once, without any gap.
    ideal_output_throughput: f64,
    trustworthy: bool,
    client: ClientStats,
}

#[derive(Clone, Debug, Serialize)]
struct Calibration {
    true_ttft_ms: f64,
    true_step_ms: f64,
    client_cpus: Vec<usize>,
    mock_cpu: Option<usize>,
    rows: Vec<Row>,
    /// Largest concurrency up to which every tried one was trustworthy.
    trustworthy_up_to: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Exit> {
    for (flag, ms) in [("--ttft-ms", args.ttft_ms), ("--step-ms", args.step_ms)] {
        ensure!(
            ms > 0.0 && ms <= 60_000.0,
            "{flag} {ms}: expected more than 0 and at most 60000 ms"
        );
    }
    let mut grid = args.concurrency.clone();
    grid.sort_unstable();
    grid.dedup();
    let cpus = affinity::allowed()?;
    let (client_cpus, mock_cpu) = match cpus.split_last() {
        Some((last, rest)) if !rest.is_empty() => (rest.to_vec(), Some(*last)),
        _ => (cpus.clone(), None),
    };
    let mock = MockProcess::start(args, mock_cpu)?;
    if mock_cpu.is_some() {
        affinity::pin(&client_cpus)?;
    }
    let mut rows = Vec::new();
    for &c in &grid {
        output::note(&format!("calibrating at concurrency {c}"));
        rows.push(row(args, &mock.base_url, c)?);
    }
    let trusted = rows.iter().take_while(|r| r.trustworthy).last();
    let result = Calibration {
        true_ttft_ms: args.ttft_ms,
        true_step_ms: args.step_ms,
        client_cpus,
        mock_cpu,
        trustworthy_up_to: trusted.map(|r| r.concurrency),
        rows,
    };
    if args.json {
        output::print(&serde_json::to_string_pretty(&result)?)?;
    } else {
        output::print(&render(&result))?;
    }
    Ok(match result.trustworthy_up_to {
        Some(_) => Exit::Clean,
        None => Exit::NotClean,
    })
}

fn row(args: &CalibrateArgs, base_url: &str, concurrency: u32) -> anyhow::Result<Row> {
    let requests = (4 * u64::from(concurrency)).max(16);
    let cell = CellSpec {
        index: 0,
        workload: "calibration".to_owned(),
        input_len: Some(32),
        output_len: Some(args.output_len),
        load: Load::Concurrency(concurrency),
        requests: Some(requests),
        duration_s: None,
        cache: CacheMode::Cold,
    };
    let plan = LoadPlan {
        send_stamps: true,
        metrics_interval_s: None,
        threads: args.threads.min(concurrency),
        ..LoadPlan::new(vec![base_url.to_owned()], vec![cell.clone()])
    };
    let run = Run::prepare(plan, &Secrets::default())?;
    let stop = watch::Sender::new(Stop::Run);
    let mut records: Vec<RequestRecord> = Vec::new();
    let done = run.run_cell(&cell, 0, &stop, &mut |event| {
        if let Event::Record(record) = event
            && record.phase == Phase::Measured
        {
            records.push(record.clone());
        }
        ControlFlow::Continue(())
    })?;
    let options = Options {
        stall: StallGap::Off,
        bootstrap_resamples: 0,
        ..Options::default()
    };
    let summary = summarize(&records, &cell, &options)?;
    let ttft = summary.ttft();
    let bias = |ms: Option<f64>| ms.map(|ms| ms - args.ttft_ms);
    let mut lags: Vec<u64> = records
        .iter()
        .flat_map(|r| r.delivery_lag_ns.iter().copied())
        .collect();
    lags.sort_unstable();
    let row = Row {
        concurrency,
        requests,
        failed: records
            .iter()
            .filter(|r| r.outcome != Outcome::Completed)
            .count() as u64,
        ttft_bias_p50_ms: bias(ttft.map(|d| d.median)),
        ttft_bias_p99_ms: bias(ttft.and_then(|d| d.percentile(99.0))),
        delivery_lag_p50_ms: quantile_ms(&lags, 0.5),
        delivery_lag_p99_ms: quantile_ms(&lags, 0.99),
        output_throughput: summary.output_throughput(),
        ideal_output_throughput: 1000.0 * f64::from(concurrency) * args.output_len as f64
            / (args.ttft_ms + (args.output_len - 1) as f64 * args.step_ms),
        trustworthy: false,
        client: done.client,
    };
    let trustworthy = is_trustworthy(&row);
    Ok(Row { trustworthy, ..row })
}

fn is_trustworthy(row: &Row) -> bool {
    let within = |value: Option<f64>, limit: f64| value.is_some_and(|v| v.abs() <= limit);
    row.failed == 0
        && within(row.ttft_bias_p50_ms, MAX_TTFT_BIAS_MS)
        && within(row.delivery_lag_p99_ms, MAX_LAG_MS)
        && within(row.client.timer_lag_p99_ms, MAX_LAG_MS)
        && row.client.loop_cpu_pct <= 80.0
}

/// Nearest-rank is enough for a lag; the values are sorted.
fn quantile_ms(sorted: &[u64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (q * last as f64).round() as usize;
    sorted.get(at).map(|ns| *ns as f64 / 1e6)
}

fn render(result: &Calibration) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "C",
        "requests",
        "TTFT bias p50",
        "TTFT bias p99",
        "lag p50",
        "lag p99",
        "timer lag p99",
        "CPU us/event",
        "client CPU",
        "coalesced",
        "tok/s",
        "of ideal",
        "trustworthy",
    ]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let ms = |v: Option<f64>| v.map_or_else(|| "n/a".to_owned(), |v| format!("{v:.2}"));
    for r in &result.rows {
        table.add_row([
            r.concurrency.to_string(),
            r.requests.to_string(),
            ms(r.ttft_bias_p50_ms),
            ms(r.ttft_bias_p99_ms),
            ms(r.delivery_lag_p50_ms),
            ms(r.delivery_lag_p99_ms),
            ms(r.client.timer_lag_p99_ms),
            ms(r.client.loop_cpu_us_per_event),
            format!("{:.0} %", r.client.loop_cpu_pct),
            r.client
                .coalesced_share
                .map_or_else(|| "n/a".to_owned(), |s| format!("{:.1} %", 100.0 * s)),
            r.output_throughput
                .map_or_else(|| "n/a".to_owned(), |t| format!("{t:.0}")),
            r.output_throughput.map_or_else(
                || "n/a".to_owned(),
                |t| format!("{:.1} %", 100.0 * t / r.ideal_output_throughput),
            ),
            if r.trustworthy { "yes" } else { "no" }.to_owned(),
        ]);
    }
    let place = match result.mock_cpu {
        Some(cpu) => format!(
            "mock server on CPU {cpu}, client on {:?}",
            result.client_cpus
        ),
        None => "client and mock server share one CPU: the numbers are pessimistic".to_owned(),
    };
    let verdict = match result.trustworthy_up_to {
        Some(c) => format!("trustworthy up to concurrency {c} of those tried"),
        None => "not trustworthy at any concurrency tried".to_owned(),
    };
    format!(
        "truth: first token after {} ms, then one every {} ms; {place}\nall times in ms; lag = read time minus the \
         server's send time of each event\n{table}\n{verdict} (TTFT p50 within {MAX_TTFT_BIAS_MS} ms, lag p99 within \
         {MAX_LAG_MS} ms, receive thread at most 80 % busy)",
        result.true_ttft_ms, result.true_step_ms
    )
}

/// The mock server as a child process; stopped when dropped.
struct MockProcess {
    child: Child,
    base_url: String,
}

impl MockProcess {
    fn start(args: &CalibrateArgs, cpu: Option<usize>) -> anyhow::Result<MockProcess> {
        let exe = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(exe);
        command
            .args(["mock", "--port", "0", "--mode", "per_request", "--stamp"])
            .arg(format!("--ttft-ms={}", args.ttft_ms))
            .arg(format!("--step-ms={}", args.step_ms))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(cpu) = cpu {
            command.arg(format!("--cpu={cpu}"));
        }
        let mut child = command.spawn().context("cannot start the mock server")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim().strip_prefix("listening on ") {
            Some(url) => Ok(MockProcess {
                child,
                base_url: url.to_owned(),
            }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the mock server did not start")
            }
        }
    }
}

impl Drop for MockProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
