use std::sync::LazyLock;

use super::*;
use crate::classify::Rules;
use crate::steps::{Batch, LaneSteps, Step, StepKind};
use crate::{LaneId, NameId, Names, Op, OpKind, pair_collectives, split};

/// Compiled once: it takes most of a test.
static RULES: LazyLock<Rules> = LazyLock::new(Rules::embedded);

const GEMM: &str = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT";
const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";
const FLASH: &str = "flash_fwd_splitkv_kernel<\"x\">";

/// One decode step of `ranks` ranks: a product, attention, the all-reduce in which odd ranks wait, a kernel of the next
/// stream beside it.
fn step_of(ranks: u32) -> (Trace, Classes, Vec<LaneSteps>) {
    let mut names = Names::default();
    for name in [GEMM, FLASH, ALL_REDUCE] {
        names.push(name, name.split(['<', '(']).next().unwrap_or_default());
    }
    let mut trace = Trace {
        names,
        ..Trace::default()
    };
    for rank in 0..ranks {
        let wait = u64::from(rank % 2) * 60_000;
        let op = |start: i64, dur: u64, name: u32, stream: u32| Op {
            start,
            dur,
            name: NameId(name),
            stream,
            corr: 0,
            node: 0,
            bytes: 0,
            kind: OpKind::Kernel,
        };
        let ops = [
            op(5_000, 200_000, 0, 7),
            op(206_000, 240_000 - wait, 1, 7),
            op(446_000 - wait as i64, 100_000 + wait, 2, 7),
            // Two of less than a pixel, one of which begins early.
            op(545_900, 400, 0, 7),
            op(546_200, 300, 0, 7),
            op(300_000, 20_000, 0, 20),
        ];
        trace.lanes.push(Lane {
            id: LaneId {
                file: 0,
                global_pid: i64::from(rank + 1) << 24,
                device: rank,
            },
            pid: rank + 4_000_000,
            gpu: crate::Gpu {
                name: Some("NVIDIA H200 <80GB>".to_owned()),
                ..Default::default()
            },
            ops: ops.into_iter().collect(),
        });
    }
    let classes = Classes::of(&trace.names, &RULES);
    let steps = (0..trace.lanes.len())
        .map(|lane| {
            let mut all = LaneSteps::whole(&trace, lane).unwrap();
            let step = &mut all.steps[0];
            step.index = 12;
            step.end = 590_000;
            step.kind = StepKind::Decode;
            step.batch = Some(Batch {
                generation_requests: 16,
                generation_tokens: Some(16),
                ..Batch::default()
            });
            all
        })
        .collect();
    (trace, classes, steps)
}

fn drawn(ranks: u32) -> String {
    let (trace, classes, steps) = step_of(ranks);
    let comm = pair_collectives(&trace, &classes, &steps).unwrap();
    let splits: Vec<_> = steps
        .iter()
        .map(|lane| split(&trace, &classes, lane, Some(&comm)).unwrap())
        .collect();
    let options = SvgOptions::step(12, "a&b.sqlite");
    step_svg(&trace, &classes, &splits, Some(&comm), &options).unwrap()
}

/// The value of an attribute.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

fn number(element: &str, name: &str) -> f64 {
    attribute(element, name).unwrap().parse().unwrap()
}

/// Left, right, top and bottom of every text, by the widest face.
fn boxes(svg: &str) -> Vec<(f64, f64, f64, f64, String)> {
    let lines = svg.lines().filter(|line| line.starts_with("<text "));
    lines
        .map(|line| {
            let (x, y, size) = (
                number(line, "x"),
                number(line, "y"),
                number(line, "font-size"),
            );
            let text = line.split_once('>').unwrap().1.trim_end_matches("</text>");
            let plain = text
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&");
            let width = canvas::width_of(&plain, size);
            let left = match attribute(line, "text-anchor") {
                Some("end") => x - width,
                Some("middle") => x - width / 2.0,
                _ => x,
            };
            (left, left + width, y - 0.8 * size, y + 0.2 * size, plain)
        })
        .collect()
}

#[track_caller]
fn check_text(svg: &str) {
    let (width, height) = (number(svg, "width"), number(svg, "height"));
    let boxes = boxes(svg);
    for (i, a) in boxes.iter().enumerate() {
        assert!(
            a.0 >= 0.0 && a.1 <= width && a.2 >= 0.0 && a.3 <= height,
            "{a:?} is outside"
        );
        for b in &boxes[i + 1..] {
            let apart = a.1 <= b.0 || b.1 <= a.0 || a.3 <= b.2 || b.3 <= a.2;
            assert!(apart, "{a:?} covers {b:?}");
        }
    }
}

#[test]
fn two_ranks() {
    insta::assert_snapshot!(drawn(2));
}

#[test]
fn text_never_covers_text_and_stays_inside() {
    for ranks in [1, 2, 4, 5, 8] {
        check_text(&drawn(ranks));
    }
}

#[test]
fn it_stands_on_its_own_and_says_what_it_shows() {
    let svg = drawn(2);
    for outside in ["http", "<script", "<style", "@import", "href"] {
        let own = svg.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!own.contains(outside), "{outside}");
    }
    assert!(
        svg.contains("role=\"img\" aria-labelledby=\"linktax-step-12-title linktax-step-12-desc\"")
    );
    assert!(svg.contains("<title id=\"linktax-step-12-title\">Step 12 (decode, 16 requests, 16 tokens) of a&amp;b.sqlite</title>"));
    assert!(svg.contains("GPU 1: 585,000 ns, of which linear 37.7 %, attention 27.4 %, comm service 17.1 %, comm wait 10.3 %, idle 7.6 %."));
    // The short kernel that began early has a row of its own.
    assert!(svg.contains(">stream 7 +1</text>"));
}

#[test]
fn the_legend_sums_to_the_step() {
    let (trace, classes, steps) = step_of(2);
    let comm = pair_collectives(&trace, &classes, &steps).unwrap();
    let splits: Vec<_> = steps
        .iter()
        .map(|lane| split(&trace, &classes, lane, Some(&comm)).unwrap())
        .collect();
    for panel in panels(&trace, &splits, 12).unwrap() {
        let lines = legend::lines(&panel);
        let sum: u64 = lines.iter().filter_map(|line| line.ns).sum();
        assert_eq!(sum, panel.split.step.dur());
    }
}

#[test]
fn a_step_that_is_not_there_is_refused_with_those_that_are() {
    let (trace, classes, steps) = step_of(1);
    let splits = vec![split(&trace, &classes, &steps[0], None).unwrap()];
    let error = step_svg(&trace, &classes, &splits, None, &SvgOptions::step(3, "x")).unwrap_err();
    assert_eq!(error.to_string(), "no step 3; steps are 12 to 12");
    let none = step_svg(&trace, &classes, &[], None, &SvgOptions::step(3, "x")).unwrap_err();
    assert_eq!(none.to_string(), "no step 3; no steps were found");
}

#[test]
fn kinds_of_step_read_as_words() {
    let (_, _, steps) = step_of(1);
    let step: &Step = &steps[0].steps[0];
    let words = |step: &Step| step_words(step.kind, step.batch);
    assert_eq!(words(step), "decode, 16 requests, 16 tokens");
    let one = Step {
        batch: Some(Batch {
            generation_requests: 1,
            generation_tokens: Some(4),
            ..Batch::default()
        }),
        ..step.clone()
    };
    assert_eq!(words(&one), "decode, 1 request, 4 tokens");
    assert_eq!(words(&Step { batch: None, ..one }), "decode");
}
