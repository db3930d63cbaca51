//! The cells of a run: every input length with every load.

use anyhow::{Context, ensure};
use linktax_loadgen::workload::{RunSection, WorkloadKind, WorkloadSpec, parse_cache};
use linktax_records::{CacheMode, CellSpec, Load};

use super::args::{BenchArgs, MAX_CONCURRENCY, MAX_TOKENS};
use super::origin;

/// Fewest measured requests of a cell by default: what an interval over requests needs.
const MIN_REQUESTS: u64 = 8;

/// Waves of requests of a cell by default: with fewer there is no steady state.
const WAVES: u64 = 4;

/// What is run when nothing is said. The mock server's grid is made for ten seconds.
const CONCURRENCY: [u32; 3] = [1, 4, 16];
const MOCK_CONCURRENCY: [u32; 3] = [1, 2, 8];
const INPUT_LEN: u64 = 1024;
const OUTPUT_LEN: u64 = 128;
const MOCK_OUTPUT_LEN: u64 = 64;

/// The grid: input lengths outside, loads inside, so that a table reads like the published ones.
pub(crate) fn cells(
    args: &BenchArgs,
    run: &RunSection,
    workload: &WorkloadSpec,
) -> anyhow::Result<Vec<CellSpec>> {
    let synthetic = workload.kind == WorkloadKind::Synthetic;
    let input_lens: Vec<Option<u64>> = if synthetic {
        let lens = args.input_len.clone().or_else(|| run.input_len.clone());
        lens.unwrap_or_else(|| vec![INPUT_LEN])
            .into_iter()
            .map(Some)
            .collect()
    } else {
        ensure!(
            args.input_len.is_none(),
            "--input-len is for made-up prompts; the prompts of a file have their own lengths"
        );
        vec![None]
    };
    let output_len = args
        .output_len
        .or(run.output_len)
        .or(synthetic.then_some(match args.mock {
            true => MOCK_OUTPUT_LEN,
            false => OUTPUT_LEN,
        }));
    // Flags were checked as they were read.
    for (key, lens) in [
        ("input_len", run.input_len.as_deref().unwrap_or_default()),
        ("output_len", run.output_len.as_slice()),
    ] {
        for len in lens {
            ensure!(
                (1..=MAX_TOKENS).contains(len),
                "{} {len}: expected 1 to {MAX_TOKENS} tokens",
                origin::name(args, key, false, key)
            );
        }
    }
    let cache = match (&args.cache, run.cache) {
        (Some(text), _) => parse_cache(text).context("--cache")?,
        (None, Some(cache)) => cache,
        (None, None) if synthetic => CacheMode::Cold,
        (None, None) => CacheMode::Workload,
    };
    let duration_s = args
        .duration
        .or(run.duration_s.filter(|_| args.requests.is_none()));
    if let Some(s) = duration_s {
        ensure!(
            s > 0.0 && s <= 604_800.0,
            "{} {s}: expected more than 0 and at most 604800 seconds",
            origin::name(args, "--duration", args.duration.is_some(), "duration_s")
        );
        ensure!(
            cache != CacheMode::Warm,
            "--cache warm sends every prompt once before measuring, so the number of requests must be known: use --requests instead of --duration"
        );
    }
    let name = workload
        .name
        .clone()
        .unwrap_or_else(|| "synthetic".to_owned());
    let loads = loads(args, run, workload)?;
    let mut cells = Vec::new();
    for input_len in input_lens {
        for load in &loads {
            let requests = match duration_s {
                Some(_) => None,
                None => requests(args, run, load, synthetic),
            };
            ensure!(
                requests != Some(0),
                "{} 0: expected at least 1",
                origin::name(args, "--requests", args.requests.is_some(), "requests")
            );
            cells.push(CellSpec {
                index: cells.len() as u32,
                workload: name.clone(),
                input_len,
                output_len,
                load: *load,
                requests,
                duration_s,
                cache,
            });
        }
    }
    Ok(cells)
}

fn requests(args: &BenchArgs, run: &RunSection, load: &Load, synthetic: bool) -> Option<u64> {
    let streams = load.concurrency();
    let by_default = || match load {
        Load::Concurrency(c) if synthetic => Some((WAVES * u64::from(*c)).max(MIN_REQUESTS)),
        Load::Rate { per_second, .. } if synthetic => {
            Some(((per_second * 30.0) as u64).max(MIN_REQUESTS))
        }
        // Files and traces: all there is.
        _ => None,
    };
    args.requests
        .or_else(|| run.requests_at(streams.unwrap_or(1)))
        .or_else(by_default)
}

fn loads(args: &BenchArgs, run: &RunSection, workload: &WorkloadSpec) -> anyhow::Result<Vec<Load>> {
    let concurrency = args.concurrency.clone().or_else(|| run.concurrency.clone());
    for c in concurrency.iter().flatten() {
        ensure!(
            (1..=MAX_CONCURRENCY).contains(c),
            "{} {c}: expected 1 to {MAX_CONCURRENCY}",
            origin::name(
                args,
                "--concurrency",
                args.concurrency.is_some(),
                "concurrency"
            )
        );
    }
    let rates = args
        .request_rate
        .clone()
        .or_else(|| run.request_rate.map(|r| vec![r]));
    let cap = match concurrency.as_deref() {
        Some([cap]) => Some(*cap),
        _ => run.max_concurrency,
    };
    let open = rates.is_some() || workload.kind == WorkloadKind::Trace;
    ensure!(
        !(open && args.concurrency.as_ref().is_some_and(|c| c.len() > 1)),
        "with an open loop --concurrency is the cap on requests in flight: give one number"
    );
    if workload.kind == WorkloadKind::Trace && rates.is_none() {
        let speedup = args.speedup.or(run.speedup).unwrap_or(1.0);
        ensure!(
            speedup.is_finite() && speedup > 0.0,
            "{} {speedup}: expected more than 0",
            origin::name(args, "--speedup", args.speedup.is_some(), "speedup")
        );
        return Ok(vec![Load::Trace {
            speedup,
            max_concurrency: cap,
        }]);
    }
    ensure!(args.speedup.is_none(), "--speedup is for traces");
    let Some(rates) = rates else {
        let grid = concurrency.unwrap_or_else(|| default_grid(args));
        return Ok(grid.into_iter().map(Load::Concurrency).collect());
    };
    let burstiness = args.burstiness.or(run.burstiness).unwrap_or(1.0);
    ensure!(
        burstiness > 0.0,
        "{} {burstiness}: expected more than 0 (1 is Poisson, inf is constant spacing)",
        origin::name(
            args,
            "--burstiness",
            args.burstiness.is_some(),
            "burstiness"
        )
    );
    rates
        .into_iter()
        .map(|per_second| {
            ensure!(
                per_second.is_finite() && per_second > 0.0 && per_second <= 1e6,
                "{} {per_second}: expected more than 0 and at most 1000000 a second; for as fast as possible use --concurrency",
                origin::name(args, "--request-rate", args.request_rate.is_some(), "request_rate")
            );
            Ok(Load::Rate {
                per_second,
                burstiness: burstiness.is_finite().then_some(burstiness),
                max_concurrency: cap,
            })
        })
        .collect()
}

fn default_grid(args: &BenchArgs) -> Vec<u32> {
    match args.mock {
        true => MOCK_CONCURRENCY.to_vec(),
        false => CONCURRENCY.to_vec(),
    }
}
