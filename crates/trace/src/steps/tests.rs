use super::*;
use crate::classify::Rules;
use crate::{Launch, LaunchKind, Mark, NameId, Names, Op, OpKind, Process};

const PID: i64 = 5 << 24;

/// One process on one thread: every operation has a launch of the same correlation id.
#[derive(Default)]
struct Story {
    ops: Vec<Op>,
    launches: Vec<Launch>,
    marks: Vec<Mark>,
}

const NAMES: [&str; 5] = [
    "nvjet_tst_64x16_64x16_4x1_v_bz_TNT",
    "_prepare_pos_seq_lens_kernel",
    "_gumbel_sample_kernel",
    "flash_fwd_splitkv_kernel",
    "mystery_a",
];

impl Story {
    fn run(&mut self, launched: i64, start: i64, dur: u64, name: u32, node: u64) -> &mut Self {
        let corr = self.launches.len() as u32 + 1;
        self.launches.push(Launch {
            corr,
            start: launched,
            dur: 1,
            tid: 9,
            kind: LaunchKind::Kernel,
        });
        self.ops.push(Op {
            start,
            dur,
            name: NameId(name),
            stream: 7,
            corr,
            node,
            bytes: 0,
            kind: OpKind::Kernel,
        });
        self
    }

    fn mark(&mut self, start: i64, end: i64, text: &str) -> &mut Self {
        self.marks.push(Mark {
            file: 0,
            global_tid: PID + 9,
            start,
            end: Some(end),
            text: text.to_owned(),
        });
        self
    }

    fn trace(&self) -> Trace {
        let mut names = Names::default();
        for name in NAMES {
            names.push(name, name);
        }
        let id = LaneId {
            file: 0,
            global_pid: PID,
            device: 0,
        };
        Trace {
            names,
            lanes: vec![Lane {
                id,
                pid: 5,
                gpu: crate::Gpu::default(),
                ops: self.ops.iter().copied().collect(),
            }],
            processes: vec![Process {
                file: 0,
                global_pid: PID,
                name: None,
                launches: self.launches.clone(),
            }],
            marks: self.marks.clone(),
            ..Trace::default()
        }
    }

    fn steps(&self, options: &StepOptions) -> LaneSteps {
        let trace = self.trace();
        let classes = Classes::of(&trace.names, &Rules::embedded());
        find_steps(&trace, &classes, options).unwrap().remove(0)
    }

    fn spans(&self, options: &StepOptions) -> Vec<(StepKind, i64, i64)> {
        let found = self.steps(options);
        found
            .steps
            .iter()
            .map(|s| (s.kind, s.start, s.end))
            .collect()
    }
}

const DECODE: &str = "execute_context_0(0)_generation_2(2)";

#[test]
fn a_step_owns_what_is_launched_after_its_range() {
    let mut story = Story::default();
    // Marks end long before the GPU begins; the sampler is launched after the range.
    for k in 0..4 {
        let cpu = k * 100;
        story
            .mark(cpu, cpu + 20, DECODE)
            .run(cpu + 5, 250 + k * 100, 60, 0, 0)
            .run(cpu + 50, 310 + k * 100, 20, 2, 0);
    }
    let spans = story.spans(&StepOptions::default());
    let decode = |a, b| (StepKind::Decode, a, b);
    assert_eq!(
        spans,
        [
            decode(250, 350),
            decode(350, 450),
            decode(450, 550),
            decode(550, 630)
        ]
    );
}

#[test]
fn nested_and_foreign_marks_make_no_steps() {
    let mut story = Story::default();
    story.mark(0, 90, DECODE).mark(10, 20, "decode_step 1");
    story.run(5, 100, 50, 0, 0).run(15, 150, 50, 0, 0);
    story.mark(100, 190, DECODE).run(105, 200, 50, 0, 0);
    // The same text in another process.
    story.marks.push(Mark {
        global_tid: (6 << 24) + 9,
        ..story.marks[0].clone()
    });
    let spans = story.spans(&StepOptions::default());
    assert_eq!(
        spans,
        [(StepKind::Decode, 100, 200), (StepKind::Decode, 200, 250)]
    );
}

#[test]
fn a_pause_without_launches_is_idle_not_a_step() {
    const MS: i64 = 1_000_000;
    let mut story = Story::default();
    for (k, at) in [0, 10, 20, 500, 510].into_iter().enumerate() {
        let (cpu, gpu) = (at * MS, (at + 1) * MS);
        story.mark(cpu, cpu + MS / 2, DECODE);
        story.run(cpu + 5, gpu, 8 * MS as u64, 0, 0);
        assert_eq!(story.launches.len(), k + 1);
    }
    let spans = story.spans(&StepOptions::default());
    assert_eq!(spans.len(), 6);
    assert_eq!(spans[2], (StepKind::Decode, 21 * MS, 29 * MS));
    assert_eq!(spans[3], (StepKind::Idle, 29 * MS, 501 * MS));
    // A pause in which the CPU was busy launching is the step's own.
    story.launches.push(Launch {
        corr: 99,
        start: 60 * MS,
        ..story.launches[0]
    });
    story.launches.sort_by_key(|l| l.start);
    assert_eq!(story.spans(&StepOptions::default()).len(), 5);
}

#[test]
fn draft_passes_are_cut_off_on_request() {
    let mut story = Story::default();
    for k in 0..3 {
        let (cpu, gpu) = (k * 100, 50 + k * 100);
        story
            .mark(cpu, cpu + 20, DECODE)
            .run(cpu + 5, gpu, 60, 0, 0)
            .mark(cpu + 40, cpu + 60, "gpu_model_runner: draft")
            .run(cpu + 45, gpu + 70, 10, 0, 0)
            .run(cpu + 46, gpu + 80, 10, 0, 0);
    }
    assert_eq!(story.spans(&StepOptions::default()).len(), 3);
    let drafts = StepOptions {
        drafts: true,
        ..StepOptions::default()
    };
    let spans = story.spans(&drafts);
    let kinds: Vec<_> = spans.iter().map(|s| s.0).collect();
    assert_eq!(kinds, [[StepKind::Decode, StepKind::Draft]; 3].concat());
    assert_eq!((spans[0], spans[1].1), ((StepKind::Decode, 50, 120), 120));
}

#[test]
fn anchors_open_steps_and_samplers_close_them() {
    let mut prepared = Story::default();
    let mut sampled = Story::default();
    for k in 0..5 {
        let at = k * 100;
        prepared.run(at, at, 10, 1, 0).run(at, at + 10, 50, 0, 0);
        sampled.run(at, at, 50, 0, 0).run(at, at + 50, 10, 2, 0);
    }
    for story in [prepared, sampled] {
        let found = story.steps(&StepOptions::default());
        assert_eq!(found.method, StepMethod::Anchor);
        let starts: Vec<_> = found.steps.iter().map(|s| s.start).collect();
        assert_eq!(starts, [0, 100, 200, 300, 400]);
    }
}

#[test]
fn pieces_of_a_graph_are_not_steps() {
    let mut story = Story::default();
    for k in 0..6 {
        let at = k * 1000;
        story.run(at, at, 10, 1, 0);
        for piece in 0..8 {
            // One graph per layer, attention between them.
            let at = at + 20 + piece * 100;
            let corr = story.launches.len() as u32 + 2;
            story.run(at, at, 30, 0, 3).run(at, at + 30, 20, 0, 4);
            story
                .ops
                .iter_mut()
                .rev()
                .take(2)
                .for_each(|op| op.corr = corr);
            story.run(at, at + 60, 20, 3, 0);
        }
    }
    let found = story.steps(&StepOptions::default());
    assert_eq!((found.method, found.steps.len()), (StepMethod::Anchor, 6));
}

#[test]
fn bursts_of_unknown_kernels_are_found_by_their_pauses_with_little_faith() {
    let mut story = Story::default();
    for k in 0..8i64 {
        for j in 0..(3 + k % 2) {
            let at = k * 100_000 + j * 5_000;
            story.run(at, at, 4_000 + (j * 7 % 3) as u64, 4, 0);
        }
    }
    let found = story.steps(&StepOptions::default());
    assert_eq!((found.method, found.steps.len()), (StepMethod::Gap, 8));
    assert!(found.confidence < 0.3);
    assert_eq!(found.notes.last().unwrap().code, "gap_steps");
}

#[test]
fn overhead_of_several_threads_counts_once() {
    let mut story = Story::default();
    for k in 0..3 {
        story
            .mark(k * 100, k * 100 + 9, DECODE)
            .run(k * 100, k * 100 + 1, 90, 0, 0);
    }
    let mut trace = story.trace();
    let span = |start, end| Span { start, end };
    trace.overhead = vec![span(50, 70), span(60, 80), span(150, 151)];
    let classes = Classes::of(&trace.names, &Rules::embedded());
    let found = find_steps(&trace, &classes, &StepOptions::default()).unwrap();
    let overhead: Vec<_> = found[0].steps.iter().map(|s| s.overhead_ns).collect();
    assert_eq!(overhead, [30, 1, 0]);
    assert_eq!(found[0].notes.last().unwrap().code, "profiler_overhead");
}

#[test]
fn fr_19_a_window_past_the_capture_is_cut_to_it_with_a_note() {
    let mut story = Story::default();
    for k in 0..6 {
        let at = k * 1_000_000_000;
        story
            .mark(at, at + 9, DECODE)
            .run(at, at, 500_000_000, 0, 0);
    }
    let window = StepOptions {
        from: Some(0),
        to: Some(60_000_000_000),
        ..StepOptions::default()
    };
    let found = story.steps(&window);
    assert_eq!((found.steps.len(), found.wall_ns()), (6, 5_500_000_000));
    assert_eq!(found.notes.last().unwrap().code, "window_past_capture");
}
