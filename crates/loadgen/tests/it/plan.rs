use linktax_loadgen::{LoadError, LoadPlan};
use linktax_records::{CacheMode, Load};
use proptest::prelude::*;

use crate::harness::{cell, closed, plan};

const URL: &str = "http://127.0.0.1:8000";

/// Any number, and often one at an edge.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        0.0..100_000.0f64,
        prop::sample::select(vec![
            0.0,
            -0.0,
            -1.0,
            1.0,
            1e-300,
            1e300,
            86_400.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
        ]),
    ]
}

fn load() -> impl Strategy<Value = Load> {
    prop_oneof![
        any::<u32>().prop_map(Load::Concurrency),
        (0u32..3).prop_map(Load::Concurrency),
        (number(), prop::option::of(number()), any::<Option<u32>>()).prop_map(
            |(per_second, burstiness, max_concurrency)| Load::Rate {
                per_second,
                burstiness,
                max_concurrency,
            }
        ),
        (number(), any::<Option<u32>>()).prop_map(|(speedup, max_concurrency)| Load::Trace {
            speedup,
            max_concurrency,
        }),
    ]
}

fn cache() -> impl Strategy<Value = CacheMode> {
    prop_oneof![
        Just(CacheMode::Cold),
        Just(CacheMode::Warm),
        Just(CacheMode::Workload),
        number().prop_map(CacheMode::Prefix),
    ]
}

prop_compose! {
    fn any_plan()(
        load in load(),
        cache in cache(),
        requests: Option<u64>,
        duration_s in prop::option::of(number()),
        timeouts in [number(), number(), number()],
        metrics_interval_s in prop::option::of(number()),
        threads in prop_oneof![0u32..4, any::<u32>()],
        lengths: (Option<u64>, Option<u64>),
        num_warmups: Option<u64>,
    ) -> LoadPlan {
        let mut spec = cell(load, requests);
        (spec.duration_s, spec.cache) = (duration_s, cache);
        (spec.input_len, spec.output_len) = lengths;
        LoadPlan {
            connect_timeout_s: timeouts[0],
            first_token_timeout_s: timeouts[1],
            idle_timeout_s: timeouts[2],
            metrics_interval_s,
            threads,
            num_warmups,
            ..plan(URL, spec)
        }
    }
}

fn is_duration(seconds: f64) -> bool {
    seconds > 0.0 && std::time::Duration::try_from_secs_f64(seconds).is_ok()
}

proptest! {
    #[test]
    fn validation_never_panics_and_lets_nothing_through_that_would(plan in any_plan()) {
        let Err(error) = plan.validate() else {
            let spec = &plan.cells[0];
            for seconds in [plan.connect_timeout_s, plan.first_token_timeout_s, plan.idle_timeout_s]
                .into_iter()
                .chain(plan.metrics_interval_s)
                .chain(spec.duration_s)
            {
                prop_assert!(is_duration(seconds), "{seconds}");
            }
            prop_assert!(plan.threads > 0);
            prop_assert!(spec.requests.is_some() || spec.duration_s.is_some());
            prop_assert!(spec.requests != Some(0));
            match spec.load {
                Load::Concurrency(c) => prop_assert!(c >= plan.threads),
                Load::Rate { per_second, burstiness, max_concurrency } => {
                    prop_assert!(per_second > 0.0 && per_second.is_finite());
                    prop_assert!(burstiness.is_none_or(|b| b > 0.0));
                    prop_assert!(max_concurrency != Some(0));
                }
                Load::Trace { speedup, max_concurrency } => {
                    prop_assert!(speedup > 0.0 && speedup.is_finite());
                    prop_assert!(max_concurrency != Some(0));
                }
            }
            return Ok(());
        };
        let message = error.to_string();
        prop_assert!(!message.is_empty() && !message.contains('\n'), "{message}");
    }

    #[test]
    fn any_text_is_a_base_url_or_an_error(url in "\\PC{0,40}|https?://\\PC{0,30}") {
        if let Err(error) = plan(url.as_str(), closed(1, 1)).validate() {
            let is_url_error = matches!(error, LoadError::BaseUrl { .. });
            prop_assert!(is_url_error, "{error}");
        }
    }
}

/// The message against a plan that differs from a good one in one point.
#[track_caller]
fn message(adjust: impl FnOnce(&mut LoadPlan)) -> String {
    let mut plan = plan(URL, closed(4, 8));
    assert!(plan.validate().is_ok());
    adjust(&mut plan);
    plan.validate().unwrap_err().to_string()
}

#[test]
fn messages_name_the_option_and_what_it_takes() {
    let trace = |speedup| Load::Trace {
        speedup,
        max_concurrency: None,
    };
    let rate = |per_second, burstiness, max_concurrency| Load::Rate {
        per_second,
        burstiness,
        max_concurrency,
    };
    let set = |load| move |p: &mut LoadPlan| p.cells[0].load = load;
    for (message, option, expected) in [
        (
            message(set(Load::Concurrency(0))),
            "--concurrency: 0",
            "at least 1",
        ),
        (
            message(set(rate(0.0, None, None))),
            "--request-rate: 0",
            "above 0",
        ),
        (
            message(set(rate(1.0, Some(0.0), None))),
            "--burstiness: 0",
            "above 0",
        ),
        (
            message(set(rate(1.0, None, Some(0)))),
            "--concurrency: 0",
            "at least 1",
        ),
        (message(set(trace(f64::NAN))), "--speedup: NaN", "above 0"),
        (message(|p| p.threads = 0), "--threads: 0", "at least 1"),
        (
            message(|p| p.threads = 5),
            "--threads: 5 threads",
            "at most 4",
        ),
        (
            message(|p| p.metrics_interval_s = Some(0.0)),
            "--metrics-interval: 0",
            "more than 0",
        ),
        (
            message(|p| p.idle_timeout_s = -1.0),
            "--idle-timeout: -1",
            "more than 0",
        ),
        (
            message(|p| p.cells[0].requests = Some(0)),
            "--requests: 0",
            "at least 1",
        ),
        (
            message(|p| p.cells[0].duration_s = Some(f64::INFINITY)),
            "--duration: inf",
            "more than 0",
        ),
        (
            message(|p| p.cells[0].requests = None),
            "--requests",
            "--duration",
        ),
        (
            message(|p| {
                p.cells[0].cache = CacheMode::Warm;
                p.cells[0].requests = None;
                p.cells[0].duration_s = Some(1.0);
            }),
            "--cache: warm",
            "--requests",
        ),
        (message(|p| p.cells.clear()), "grid", "no cell"),
        (
            message(|p| p.base_urls.clear()),
            "--base-url",
            "no server given",
        ),
        (
            message(|p| p.base_urls.push(format!("{URL}/v1"))),
            "--base-url",
            "given twice",
        ),
    ] {
        assert!(message.starts_with(option), "{option:?}: {message}");
        assert!(message.contains(expected), "{expected:?}: {message}");
    }
}

#[test]
fn the_speed_of_a_trace_and_the_cap_are_checked_in_every_cell() {
    let mut plan = plan(URL, closed(4, 8));
    plan.cells.push(closed(0, 8));
    assert!(plan.validate().is_err());
}
