use linktax_records::ServerDelta;
use proptest::prelude::*;

use super::*;

const BEFORE: &str = include_str!("../../tests/data/metrics_before.txt");
const AFTER: &str = include_str!("../../tests/data/metrics_after.txt");
const NGRAM_BEFORE: &str = include_str!("../../tests/data/metrics_ngram_before.txt");
const NGRAM_AFTER: &str = include_str!("../../tests/data/metrics_ngram_after.txt");

fn between(before: &str, after: &str) -> ServerDelta {
    delta(&Ok(parse(before)), &Ok(parse(after)))
}

#[test]
fn names_labels_escapes_and_values_are_read() {
    let samples = parse(concat!(
        "# HELP a_total text with {braces} 1\n",
        "a_total 3\n",
        "b:c{z=\"1\",y=\"quote \\\" back \\\\ line \\n end, } # \"} 1.5e3 1700000000000\n",
        "d { le = \"+Inf\" , } +Inf\n",
        "e NaN\n",
        "f{} -Inf\n",
        "g_bucket{le=\"0.1\"} 4 # {trace_id=\"x\"} 0.05 1.0\n",
    ));
    assert_eq!(samples.skipped, 0);
    let [a, b, d, e, f, g] = &samples.series[..] else {
        panic!("{samples:?}")
    };
    assert_eq!((a.name.as_str(), a.value), ("a_total", 3.0));
    assert_eq!(b.label("y"), Some("quote \" back \\ line \n end, } # "));
    assert_eq!((b.label("z"), b.value), (Some("1"), 1500.0));
    assert_eq!((d.label("le"), d.value), (Some("+Inf"), f64::INFINITY));
    assert!(e.value.is_nan());
    assert_eq!(f.value, f64::NEG_INFINITY);
    assert_eq!(g.value, 4.0);
}

#[test]
fn malformed_lines_are_skipped_and_counted() {
    let bad = [
        "novalue",
        "x{a=\"1\" 2",
        "x{a=1} 2",
        "x{a=\"1\"b=\"2\"} 2",
        "x{a=\"unclosed} 2",
        "9x 1",
        "x one",
        "x 1 two",
        "<html><body>not metrics</body></html>",
        "{} 1",
    ];
    let samples = parse(&format!("good 1\n{}\nalso_good 2\n", bad.join("\n")));
    assert_eq!(samples.skipped, bad.len());
    assert_eq!(samples.series.len(), 2);
}

#[test]
fn recorded_scrapes_are_read_without_a_malformed_line() {
    for text in [BEFORE, AFTER, NGRAM_BEFORE, NGRAM_AFTER] {
        let samples = parse(text);
        assert_eq!(samples.skipped, 0);
        assert_eq!(
            samples.series.len(),
            text.lines().filter(|l| !l.starts_with('#')).count()
        );
    }
}

#[test]
fn the_recorded_growth_is_what_the_files_say() {
    let delta = between(BEFORE, AFTER);
    assert_eq!(delta.unavailable, None);
    assert_eq!(delta.prefix_cache_queries, Some(14630.0));
    assert_eq!(delta.prefix_cache_hits, Some(4864.0));
    assert_eq!(delta.preemptions, Some(0.0));
    assert_eq!(delta.prompt_tokens, Some(14637.0));
    assert_eq!(delta.generation_tokens, Some(642.0));
    assert_eq!(delta.spec_decode, None);
    let ttft = delta.ttft.unwrap();
    assert_eq!(ttft.count, 38.0);
    assert_eq!(ttft.buckets.len(), 23);
    assert_eq!(ttft.buckets[0].0, Some(0.001));
    assert_eq!(ttft.buckets[22], (None, 38.0));
    assert!(ttft.buckets.is_sorted_by(|a, b| a.1 <= b.1));
    assert_eq!(delta.itl.unwrap().count, 604.0);
    assert_eq!(delta.queue.unwrap().count, 38.0);
}

#[test]
fn recorded_speculative_counters_are_found() {
    let delta = between(NGRAM_BEFORE, NGRAM_AFTER);
    let spec = delta.spec_decode.unwrap();
    assert_eq!(spec.drafts, 32.0);
    assert_eq!(spec.draft_tokens, 116.0);
    assert_eq!(spec.accepted_tokens, 116.0);
    assert_eq!(spec.acceptance_length(), Some(4.625));
}

#[test]
fn the_recorded_cache_configuration_is_read() {
    let config = cache_config(&parse(AFTER));
    assert_eq!(config.block_size, Some(128));
    assert_eq!(config.num_gpu_blocks, Some(4096));
    assert_eq!(config.kv_cache_tokens, Some(524_288));
    assert_eq!(config.prefix_caching, Some(true));
    assert_eq!(config.tensor_parallel_size, None);
    assert_eq!(config.engines, 1);
    let known = between(BEFORE, AFTER);
    assert_eq!(
        (known.block_size, known.prefix_caching),
        (Some(128), Some(true))
    );

    let parallel = parse(
        "vllm:parallel_config_info{tensor_parallel_size=\"2\",pipeline_parallel_size=\"None\"} 1",
    );
    let config = cache_config(&parallel);
    assert_eq!(config.tensor_parallel_size, Some(2));
    assert_eq!(config.pipeline_parallel_size, None);
}

#[test]
fn gauges_are_summed_over_engines_and_absent_ones_are_unknown() {
    let samples = parse(concat!(
        "vllm:num_requests_running{engine=\"0\"} 3\n",
        "vllm:num_requests_running{engine=\"1\"} 4\n",
        "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9\n",
    ));
    assert_eq!(gauges(&samples), (Some(7.0), None));
    assert_eq!(gauges(&parse(AFTER)), (Some(0.0), Some(0.0)));
}

fn fr_10(queries: [u32; 2], hits: [u32; 2]) -> String {
    format!(
        "vllm:prefix_cache_queries_total{{engine=\"0\"}} {}\n\
         vllm:prefix_cache_queries_total{{engine=\"1\"}} {}\n\
         vllm:prefix_cache_hits_total{{engine=\"0\"}} {}\n\
         vllm:prefix_cache_hits_total{{engine=\"1\"}} {}\n",
        queries[0], queries[1], hits[0], hits[1]
    )
}

#[test]
fn fr_10_hit_rate_is_summed_over_engines() {
    let before = fr_10([1000, 500], [0, 100]);
    let delta = between(&before, &fr_10([66_536, 66_036], [61_000, 61_100]));
    assert_eq!(delta.prefix_cache_queries, Some(131_072.0));
    assert_eq!(delta.prefix_cache_hits, Some(122_000.0));
    let percent = delta.prefix_hit_rate().unwrap() * 100.0;
    assert_eq!(format!("{percent:.1}"), "93.1");
}

#[test]
fn fr_10_a_counter_that_went_backwards_is_unknown() {
    let before = fr_10([1000, 500], [0, 100]);
    let delta = between(&before, &fr_10([66_536, 400], [61_000, 61_100]));
    assert_eq!(
        delta.prefix_cache_queries, None,
        "engine 1 restarted, the sum still grew"
    );
    assert_eq!(delta.prefix_cache_hits, Some(122_000.0));
    assert_eq!(delta.prefix_hit_rate(), None);
}

#[test]
fn fr_10_without_metrics_nothing_is_known() {
    let reason = "/metrics: HTTP status 404".to_owned();
    let after = Ok(parse(&fr_10([1, 1], [1, 1])));
    let delta = delta(&Err(reason.clone()), &after);
    assert_eq!(
        delta,
        ServerDelta {
            unavailable: Some(reason),
            ..ServerDelta::default()
        }
    );
    assert_eq!(delta.prefix_hit_rate(), None);
    let page = between("<html>\n", "<html>\n");
    assert_eq!(
        page.unavailable.as_deref(),
        Some("/metrics holds no vllm: series")
    );
}

#[test]
fn a_restart_shows_by_its_creation_time_even_when_the_counter_outgrew_itself() {
    let at = |value: u32, created: &str| {
        format!(
            "vllm:generation_tokens_total{{engine=\"0\"}} {value}\n\
             vllm:generation_tokens_created{{engine=\"0\"}} {created}\n"
        )
    };
    assert_eq!(
        between(&at(5, "1.7e9"), &at(9, "1.7e9")).generation_tokens,
        Some(4.0)
    );
    assert_eq!(
        between(&at(5, "1.7e9"), &at(9, "1.8e9")).generation_tokens,
        None
    );
}

#[test]
fn counters_without_the_total_suffix_count_too() {
    let delta = between("vllm:num_preemptions 2\n", "vllm:num_preemptions 5\n");
    assert_eq!(delta.preemptions, Some(3.0));
    let old = between(
        "vllm:gpu_prefix_cache_queries_total 0\n",
        "vllm:gpu_prefix_cache_queries_total 7\n",
    );
    assert_eq!(old.prefix_cache_queries, Some(7.0));
}

#[test]
fn label_sets_may_appear_but_not_disappear() {
    let one = "vllm:num_preemptions_total{engine=\"0\"} 2\n";
    let two =
        "vllm:num_preemptions_total{engine=\"0\"} 2\nvllm:num_preemptions_total{engine=\"1\"} 1\n";
    assert_eq!(between(one, two).preemptions, Some(1.0));
    assert_eq!(between(two, one).preemptions, None);
    assert_eq!(
        between("vllm:x 1\n", two).preemptions,
        None,
        "absent before"
    );
    assert_eq!(
        between(one, "vllm:num_preemptions_total{engine=\"0\"} NaN\n").preemptions,
        None
    );
}

fn tpot(engine: u32, low: u32, all: u32, sum: f64) -> String {
    let name = "vllm:time_per_output_token_seconds";
    format!(
        "{name}_bucket{{engine=\"{engine}\",le=\"+Inf\"}} {all}\n\
         {name}_bucket{{engine=\"{engine}\",le=\"0.05\"}} {low}\n\
         {name}_count{{engine=\"{engine}\"}} {all}\n{name}_sum{{engine=\"{engine}\"}} {sum}\n"
    )
}

#[test]
fn histograms_are_summed_over_engines_bound_by_bound_in_order() {
    let before = tpot(0, 1, 2, 0.5) + &tpot(1, 10, 10, 0.25);
    let after = tpot(0, 3, 5, 1.5) + &tpot(1, 10, 14, 1.25);
    let itl = between(&before, &after).itl.unwrap();
    assert_eq!((itl.count, itl.sum_s), (7.0, 2.0));
    assert_eq!(itl.buckets, [(Some(0.05), 2.0), (None, 7.0)]);
    assert_eq!(between(&after, &before).itl, None);
}

#[test]
fn replicas_add_up_and_one_unknown_makes_the_sum_unknown() {
    let known = between(NGRAM_BEFORE, NGRAM_AFTER);
    assert_eq!(merge(std::slice::from_ref(&known)), known);
    let double = merge(&[known.clone(), known.clone()]);
    assert_eq!(
        double.generation_tokens,
        known.generation_tokens.map(|n| 2.0 * n)
    );
    assert_eq!(double.spec_decode.unwrap().drafts, 64.0);
    let (one, two) = (known.ttft.clone().unwrap(), double.ttft.unwrap());
    assert_eq!(two.count, 2.0 * one.count);
    assert_eq!(two.buckets[5], (one.buckets[5].0, 2.0 * one.buckets[5].1));

    let mut partial = known.clone();
    partial.preemptions = None;
    partial.ttft.as_mut().unwrap().buckets.pop();
    let merged = merge(&[known.clone(), partial]);
    assert_eq!((merged.preemptions, merged.ttft), (None, None));
    assert_eq!(
        merged.itl.unwrap().count,
        2.0 * known.itl.as_ref().unwrap().count
    );

    let down = delta(&Err("refused".to_owned()), &Err("refused".to_owned()));
    assert_eq!(
        merge(&[known, down]).unavailable.as_deref(),
        Some("refused")
    );
    assert!(merge(&[]).unavailable.is_some());
}

#[test]
fn server_json_keeps_the_servers_own_series_and_its_cache() {
    let value = to_json(&parse(AFTER));
    assert_eq!(value["cache_config"]["block_size"], 128);
    assert_eq!(
        value["series"]["vllm:prefix_cache_hits_total{engine=\"0\"}"],
        4864.0
    );
    let names: Vec<&String> = value["series"].as_object().unwrap().keys().collect();
    assert!(
        names
            .iter()
            .all(|n| n.starts_with("vllm:") && !n.contains("_bucket"))
    );
    assert_eq!(value["skipped_lines"], 0);
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic_and_every_line_is_accounted_for(text in "[ -~\\n\u{e9}]{0,200}") {
        let samples = parse(&text);
        let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.trim().starts_with('#'));
        prop_assert_eq!(samples.series.len() + samples.skipped, lines.count());
    }

    #[test]
    fn any_label_value_survives_escaping(value in "[ -~\\n\u{e9}\u{4f60}]{0,40}", number in -1e9f64..1e9) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let samples = parse(&format!("m{{a=\"x\",b=\"{escaped}\"}} {number}"));
        prop_assert_eq!(samples.series[0].label("b"), Some(value.as_str()));
        prop_assert_eq!(samples.series[0].value, number);
    }

    #[test]
    fn the_order_of_the_lines_never_matters(
        values in proptest::collection::vec((0u32..100, 0u32..100), 1..6), rotate in 0usize..6,
    ) {
        let line = |(i, v): (usize, u32)| format!("vllm:num_preemptions_total{{engine=\"{i}\"}} {v}");
        let before: Vec<String> = values.iter().map(|v| v.0).enumerate().map(line).collect();
        let mut after: Vec<String> = values.iter().map(|v| v.0 + v.1).enumerate().map(line).collect();
        after.rotate_left(rotate % values.len());
        let grown = between(&before.join("\n"), &after.join("\n")).preemptions;
        prop_assert_eq!(grown, Some(values.iter().map(|v| f64::from(v.1)).sum()));
    }
}
