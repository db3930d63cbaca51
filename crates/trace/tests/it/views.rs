//! What is made from an analysed capture: comparison, picture of a step, steps for a trace viewer.

use std::collections::BTreeMap;

use linktax_trace::synth::Spec;
use linktax_trace::{
    ChromeOptions, ChromeTrace, Classes, Collectives, Diff, DiffPart, DiffSide, Group, LaneSplit,
    LaneSteps, MatchBy, ReadOptions, StepKind, StepOptions, SvgOptions, Trace, TraceError, diff,
    find_steps, pair_collectives, read, split, step_svg,
};
use serde_json::Value;

use crate::exports::capture;
use crate::synth::{Synthetic, spec};
use crate::synth_truth::RULES;

struct Analysed {
    trace: Trace,
    classes: Classes,
    steps: Vec<LaneSteps>,
    splits: Vec<LaneSplit>,
    collectives: Collectives,
}

impl Analysed {
    fn of(path: std::path::PathBuf) -> Self {
        let trace = read(&[path], &ReadOptions::default()).unwrap();
        let classes = Classes::of(&trace.names, &RULES);
        let steps = find_steps(&trace, &classes, &StepOptions::default()).unwrap();
        let collectives = pair_collectives(&trace, &classes, &steps).unwrap();
        let one = |lane| split(&trace, &classes, lane, Some(&collectives)).unwrap();
        let splits = steps.iter().map(one).collect();
        Analysed {
            trace,
            classes,
            steps,
            splits,
            collectives,
        }
    }

    fn recorded(name: &str) -> Self {
        Self::of(capture(name))
    }

    fn side<'a>(&'a self, label: &'a str) -> DiffSide<'a> {
        DiffSide {
            label,
            trace: &self.trace,
            classes: &self.classes,
            rules: RULES.hash(),
            steps: &self.steps,
            splits: &self.splits,
            collectives: Some(&self.collectives),
        }
    }

    fn against(&self, other: &Analysed, by: MatchBy) -> Diff {
        diff(&self.side("a"), &other.side("b"), by).unwrap()
    }

    fn chrome(&self, options: &ChromeOptions) -> Result<Value, TraceError> {
        let collectives = Some(&self.collectives);
        let made = ChromeTrace::new(
            &self.trace,
            &self.classes,
            &self.steps,
            collectives,
            options,
        )?;
        let mut out = Vec::new();
        made.write(&mut out).unwrap();
        Ok(serde_json::from_slice(&out).unwrap())
    }

    fn svg(&self, step: u32) -> String {
        let options = SvgOptions::step(step, "capture.sqlite");
        let collectives = Some(&self.collectives);
        step_svg(
            &self.trace,
            &self.classes,
            &self.splits,
            collectives,
            &options,
        )
        .unwrap()
    }
}

/// A server of two ranks whose only change is the time of its collectives.
fn server(comm_ns: u64) -> Spec {
    spec(&format!(
        "seed = 3
         [model]
         attention_layers = 4
         [[phase]]
         steps = 6
         concurrency = 8
         time_ns = {{ linear = 3_000_000, attention = 900_000, comm = {comm_ns} }}
         [[phase]]
         steps = 2
         kind = \"prefill\"
         prefill_tokens = 512
         [skew]
         kind = \"fixed\"
         delay_ns = 9_000
         straggler = 1"
    ))
}

#[test]
fn a_slower_link_is_the_only_change_that_a_comparison_finds() {
    let fast = Synthetic::new(&server(600_000));
    let slow = Synthetic::new(&server(1_500_000));
    let (a, b) = (
        Analysed::of(fast.path.clone()),
        Analysed::of(slow.path.clone()),
    );
    let found = a.against(&b, MatchBy::Batch);
    assert_eq!(found.differences, []);
    assert_eq!(found.unmatched, []);
    let kinds: Vec<_> = found
        .compared
        .iter()
        .map(|c| (c.kind, c.a.samples))
        .collect();
    assert_eq!(kinds, [(StepKind::Decode, 12), (StepKind::Prefill, 4)]);
    let decode = &found.compared[0];
    let change = |part| decode.row(part).map(|row| row.change.unwrap().mean_ns);
    assert_eq!(change(DiffPart::CommService), Some(900_000.0));
    assert_eq!(change(DiffPart::Group(Group::Comm)), Some(900_000.0));
    assert_eq!(change(DiffPart::Group(Group::Linear)), Some(0.0));
    assert_eq!(change(DiffPart::CommWait), Some(0.0));
    let wait = decode.row(DiffPart::CommWait).unwrap().a.unwrap().mean_ns;
    let truth = fast.truth.lanes.iter().flat_map(|lane| &lane.steps);
    let waits: Vec<u64> = truth
        .filter(|step| step.kind == "decode")
        .map(|step| step.wait_ns)
        .collect();
    assert_eq!(wait, waits.iter().sum::<u64>() as f64 / waits.len() as f64);
}

#[test]
fn a_capture_against_itself_shows_no_difference() {
    let a = Analysed::recorded("vllm-qwen3-4b-decode-c16");
    let found = a.against(&a, MatchBy::Batch);
    assert_eq!(found.compared.len(), 1);
    let kind = &found.compared[0];
    assert_eq!(
        (kind.kind, kind.a.steps, kind.a.gpus),
        (StepKind::Decode, 60, 1)
    );
    assert_eq!(kind.batch.and_then(|b| b.tokens()), Some(16));
    for row in &kind.rows {
        let change = row.change.unwrap();
        assert_eq!((change.mean_ns, change.median_ns), (0.0, 0.0), "{row:?}");
        assert_eq!(change.is_shown(), Some(false));
    }
    let linear = kind.row(DiffPart::Group(Group::Linear)).unwrap().a.unwrap();
    assert!((linear.mean_ns - 2.59e6).abs() < 1e4, "{linear:?}");
}

#[test]
fn recorded_captures_of_other_batches_match_by_kind_only() {
    let sixteen = Analysed::recorded("vllm-qwen3-4b-decode-c16");
    let four = Analysed::recorded("vllm-qwen3-4b-mixed-prefill");
    let found = sixteen.against(&four, MatchBy::Batch);
    assert!(found.compared.is_empty());
    // 57 decode steps of 4 tokens, and the mixed ones by their chunk.
    let steps: usize = found.unmatched.iter().map(|u| u.count.steps).sum();
    assert_eq!(steps, 120);
    assert!(
        found
            .unmatched
            .iter()
            .any(|u| u.side == 'b' && u.kind == StepKind::Mixed)
    );
    let found = sixteen.against(&four, MatchBy::Kind);
    assert_eq!(
        (found.compared[0].a.steps, found.compared[0].b.steps),
        (60, 57)
    );
    let attention = found.compared[0]
        .row(DiffPart::Group(Group::Attention))
        .unwrap();
    assert!(attention.change.unwrap().mean_percent.unwrap() < -40.0);
}

#[test]
fn a_recorded_pair_tells_service_from_wait() {
    let before = Analysed::recorded("nsys-ai-mfu_2gpu_before");
    let after = Analysed::recorded("nsys-ai-mfu_2gpu_after");
    let found = before.against(&after, MatchBy::Kind);
    let total = |part: DiffPart| -> (f64, f64) {
        let of = |level: Option<linktax_trace::Level>, count: &linktax_trace::Count| {
            level.unwrap().mean_ns * count.samples as f64 / count.gpus as f64
        };
        let each = found.compared.iter().filter_map(|c| {
            let row = c.row(part)?;
            Some((of(row.a, &c.a), of(row.b, &c.b)))
        });
        each.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
    };
    // Both GPUs' communication is 17.17 + 8.23 ms before, of which 5.78 ms a GPU is service.
    let (service, wait) = (total(DiffPart::CommService), total(DiffPart::CommWait));
    assert!((service.0 - 5.78e6).abs() < 0.1e6, "{service:?}");
    assert!(
        (wait.0 - (17.17e6 + 8.23e6 - 2.0 * 5.78e6) / 2.0).abs() < 0.1e6,
        "{wait:?}"
    );
}

/// Text, attributes and tags of an SVG are well-formed enough for a parser that stops at the first fault.
fn check_xml(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>'), "{text}");
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        assert!(
            !tag.contains('<') && tag.matches('"').count().is_multiple_of(2),
            "{tag}"
        );
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

/// `2592345` as `2,592,345 ns`.
fn grouped(ns: u64) -> String {
    let digits = ns.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + " ns"
}

#[test]
fn the_picture_of_a_recorded_step_is_small_and_has_its_figures() {
    let a = Analysed::recorded("vllm-qwen3-4b-decode-c16");
    let svg = a.svg(30);
    check_xml(&svg);
    assert!(svg.len() < 60_000, "{}", svg.len());
    let split = &a.splits[0].steps[30];
    assert_eq!(split.step.index, 30);
    assert!(svg.contains(">Step 30 (decode, 16 requests, 16 tokens) of capture.sqlite</title>"));
    for ns in [
        split.buckets.linear_ns,
        split.buckets.attention_ns,
        split.buckets.idle_ns,
        split.step.dur(),
    ] {
        assert!(svg.contains(&format!(">{}</text>", grouped(ns))), "{ns}");
    }
    // 36 attention kernels of 130 us, each wide enough to point at.
    assert_eq!(svg.matches(": attention, ").count(), 36);
    assert_eq!(svg, a.svg(30));
}

#[test]
fn a_picture_has_a_lane_a_rank_and_hatches_the_wait() {
    let a = Analysed::recorded("vllm-qwen3-4b-tp2-two-ranks-one-gpu");
    let svg = a.svg(12);
    check_xml(&svg);
    assert!(svg.len() < 200_000, "{}", svg.len());
    for head in [
        ">GPU 0 (pid ",
        ">GPU 1 (pid ",
        ">comm wait<",
        ">comm service<",
    ] {
        assert_eq!(svg.matches(head).count(), 1, "{head}");
    }
    assert!(svg.contains("url(#linktax-wait)\"><title>"));
}

#[test]
fn fr_14_an_opaque_graph_is_one_bar_and_no_idle_time() {
    let a = Analysed::recorded("vllm-qwen3-4b-decode-c16-graph-level");
    let svg = a.svg(30);
    check_xml(&svg);
    assert!(svg.contains("<title>CUDA graph (opaque): graph, "));
    assert!(svg.contains(">graph</text>"));
    // FR-14: the eager kernels' groups are no split of the step, so they have a colour and no share.
    let buckets = &a.splits[0].steps[30].buckets;
    assert!(buckets.linear_ns > 0);
    assert!(!svg.contains(&format!(">{}</text>", grouped(buckets.linear_ns))));
    assert!(!svg.contains("linear 2."));
    let eager = buckets.linear_ns + buckets.attention_ns + buckets.other_ns + buckets.unknown_ns;
    for ns in [eager, buckets.graph_ns, buckets.copy_ns, buckets.idle_ns] {
        assert!(svg.contains(&format!(">{}</text>", grouped(ns))), "{ns}");
    }
}

#[test]
fn a_range_of_recorded_steps_for_viewers_holds_every_collective_of_both_ranks() {
    let a = Analysed::recorded("vllm-qwen3-4b-tp2-two-ranks-one-gpu");
    let file = a.chrome(&ChromeOptions::steps(5, 7)).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let mut calls: BTreeMap<u64, (usize, u64, u64)> = BTreeMap::new();
    for event in events.iter().filter(|e| e["args"]["service_ns"].is_u64()) {
        let number = |key: &str| event["args"][key].as_u64().unwrap();
        assert_eq!(number("service_ns") + number("wait_ns"), number("dur_ns"));
        let sum = calls.entry(event["pid"].as_u64().unwrap()).or_default();
        *sum = (
            sum.0 + 1,
            sum.1 + number("service_ns"),
            sum.2 + number("wait_ns"),
        );
    }
    let group = &a.collectives.groups[0];
    let of = |rank: usize| {
        let mut sum = (0, 0, 0);
        for (at, collective) in group.collectives.iter().enumerate() {
            if (5..=7).contains(&collective.step) {
                let part = group.parts(at)[rank];
                sum = (sum.0 + 1, sum.1 + collective.service, sum.2 + part.wait);
            }
        }
        sum
    };
    assert_eq!(calls, BTreeMap::from([(1, of(0)), (2, of(1))]));
    assert!(calls[&1].0 >= 75, "{calls:?}");
    let steps: Vec<_> = events
        .iter()
        .filter(|e| e["cat"] == "step")
        .map(|e| {
            (
                e["pid"].as_u64().unwrap(),
                e["args"]["step"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(steps, [(1, 5), (1, 6), (1, 7), (2, 5), (2, 6), (2, 7)]);
}

#[test]
fn a_whole_capture_for_viewers_is_refused() {
    let a = Analysed::recorded("vllm-qwen3-4b-decode-c16");
    let options = ChromeOptions {
        max_ops: 10_000,
        ..ChromeOptions::steps(0, 59)
    };
    let error = a.chrome(&options).unwrap_err().to_string();
    assert!(
        error.contains("at most 10000 fit") && error.contains("--steps"),
        "{error}"
    );
}
