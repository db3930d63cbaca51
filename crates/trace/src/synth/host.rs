//! The host's side: launch calls ahead of the GPU, and the ranges that mark steps.

use super::catalog::Kernel;
use super::program::{How, Load, StepProgram};
use super::schedule::{LaneSchedule, What};
use super::spec::{NvtxForm, NvtxStyle, PhaseKind, Spec};

/// Launches never run behind the GPU by less than this.
const LEAST_LEAD: i64 = 40_000;

/// One API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// A driver call (event class 1).
    pub(crate) driver: bool,
    pub(crate) corr: u32,
    pub(crate) name: &'static str,
}

/// One NVTX row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkRow {
    pub(crate) start: i64,
    /// None: still open.
    pub(crate) end: Option<i64>,
    pub(crate) text: String,
    pub(crate) event_type: u8,
    pub(crate) domain: u32,
    /// As a registered string.
    pub(crate) registered: bool,
    /// Thread that ended it, when another.
    pub(crate) end_tid: Option<u32>,
}

/// The host's side of one rank.
pub(crate) struct Host {
    pub(crate) calls: Vec<Call>,
    pub(crate) marks: Vec<MarkRow>,
    /// Correlation id of each launch.
    pub(crate) corr: Vec<u32>,
}

/// Lays the launches of a rank before its operations.
///
/// The launches of step k start `lead` before its first operation and spread over three fifths of it, so that each
/// precedes its operation and none of the next step's.
pub(crate) fn calls(
    spec: &Spec,
    steps: &[StepProgram],
    rank: u32,
    pid: u32,
    lane: &LaneSchedule,
) -> Host {
    let lead = lead(spec, lane);
    let times = launch_times(lane, lead);
    let mut next_corr = 1_000
        + if spec.host.colliding_ids {
            0
        } else {
            rank * 50_000_000
        };
    let mut host = Host {
        calls: Vec::new(),
        marks: Vec::new(),
        corr: Vec::with_capacity(times.len()),
    };
    // Steps written many times are one session, not many.
    let whole = spec.file.kernel_rows == 0;
    if let Some(&first) = times.first().filter(|_| whole) {
        host.call(
            first - 100_000,
            5_000,
            false,
            900,
            "cudaProfilerStart_v4000",
        );
    }
    let mut orphans = spec.faults.orphan_kernels;
    let mut marked: Option<(i64, i64)> = None;
    for (i, (unit, &start)) in lane.units.iter().zip(&times).enumerate() {
        let room = times.get(i + 1).map_or(8_000, |next| next - start);
        let dur = longest(unit.how).min(room * 3 / 4).max(1);
        let new_step = i == 0 || lane.units[i - 1].step != unit.step;
        if new_step {
            host.finish_mark(spec, steps, lane, i, marked.take(), pid);
            next_corr = host.noise(spec, start, next_corr);
        }
        host.corr.push(next_corr);
        if orphans > 0 && unit.how == How::Eager {
            orphans -= 1;
        } else {
            host.launch(spec, lane, i, start, dur, next_corr);
        }
        next_corr += 7;
        if unit.marked {
            let end = start + dur + (room / 8).min(1_000);
            let from = marked.map_or(start - 5_000, |(from, _)| from);
            marked = Some((from, end));
        }
    }
    host.finish_mark(spec, steps, lane, times.len(), marked, pid);
    if whole {
        host.profiler_stop(next_corr);
    }
    host
}

/// How far ahead of the GPU a rank launches.
fn lead(spec: &Spec, lane: &LaneSchedule) -> i64 {
    let length = match lane.step_starts[..] {
        [first, second, ..] => second - first,
        [first] => lane.ops.last().map_or(0, |op| op.end()) - first,
        [] => 0,
    };
    LEAST_LEAD.max((length as f64 * spec.host.async_lag) as i64)
}

fn launch_times(lane: &LaneSchedule, lead: i64) -> Vec<i64> {
    let mut times = Vec::with_capacity(lane.units.len());
    for op in &lane.ops {
        if op.launch as usize == times.len() {
            let first = lane.step_starts[op.step as usize];
            times.push(first - lead + (op.start - first) * 3 / 5);
        }
    }
    times
}

fn longest(how: How) -> i64 {
    match how {
        How::Eager => 4_000,
        _ => 300_000,
    }
}

/// Triton kernels are launched through the driver, the others through the runtime.
fn launch_name(kernel: &Kernel) -> (&'static str, bool) {
    if kernel.full == kernel.short && kernel.full.starts_with('_') {
        ("cuLaunchKernelEx", true)
    } else {
        ("cudaLaunchKernel_v7000", false)
    }
}

impl Host {
    fn call(&mut self, start: i64, dur: i64, driver: bool, corr: u32, name: &'static str) {
        self.calls.push(Call {
            start,
            end: start + dur,
            driver,
            corr,
            name,
        });
    }

    fn launch(
        &mut self,
        spec: &Spec,
        lane: &LaneSchedule,
        unit: usize,
        start: i64,
        dur: i64,
        corr: u32,
    ) {
        let (name, driver, inner) = match lane.units[unit].how {
            How::Eager => match first_op(lane, unit) {
                Some(What::Kernel(kernel)) => {
                    let (name, driver) = launch_name(&kernel);
                    (name, driver, "cuLaunchKernel")
                }
                _ => ("cudaMemcpyAsync_v3020", false, "cuMemcpyAsync"),
            },
            _ => ("cudaGraphLaunch_v10000", false, "cuGraphLaunch"),
        };
        self.call(start, dur, driver, corr, name);
        if spec.host.driver_rows && !driver {
            self.call(start + dur / 4, dur / 2, true, corr, inner);
        }
    }

    /// Calls and ranges that have nothing to do with the step, before its first launch.
    fn noise(&mut self, spec: &Spec, launch: i64, mut corr: u32) -> u32 {
        let count = i64::from(spec.host.noise_calls);
        for i in 0..count {
            let start = launch - 4_000 + i * (3_000 / count.max(1));
            self.call(start, 400, false, corr, "cudaEventQuery_v3020");
            corr += 3;
        }
        let ranges = i64::from(spec.host.noise_ranges);
        for i in 0..ranges {
            let start = launch - 4_500 + i * (300 / ranges.max(1));
            self.marks.push(MarkRow {
                start,
                end: Some(start + 200),
                text: "cub::DeviceScan::InclusiveSum".to_owned(),
                event_type: 59,
                domain: 2,
                registered: true,
                end_tid: None,
            });
        }
        corr
    }

    /// Ends the range of the step before launch `unit`.
    fn finish_mark(
        &mut self,
        spec: &Spec,
        steps: &[StepProgram],
        lane: &LaneSchedule,
        unit: usize,
        range: Option<(i64, i64)>,
        pid: u32,
    ) {
        let Some((start, end)) = range.filter(|_| spec.host.nvtx != NvtxForm::None) else {
            return;
        };
        let step = lane.units[unit - 1].step as usize;
        let last = unit == lane.units.len();
        let elsewhere = spec.host.nvtx == NvtxForm::OtherThread;
        self.marks.push(MarkRow {
            start,
            end: (spec.host.nvtx != NvtxForm::Open || !last).then_some(end),
            text: mark_text(spec.host.nvtx_style, step, &steps[step]),
            event_type: if elsewhere { 60 } else { 59 },
            domain: 0,
            registered: spec.host.nvtx == NvtxForm::TextId,
            end_tid: elsewhere.then_some(pid + 17),
        });
    }

    fn profiler_stop(&mut self, corr: u32) {
        if let Some(last) = self.calls.iter().map(|c| c.end).max() {
            self.call(last + 50_000, 5_000, false, corr, "cudaProfilerStop_v4000");
        }
    }
}

fn first_op(lane: &LaneSchedule, unit: usize) -> Option<What> {
    let at = lane.ops.partition_point(|op| (op.launch as usize) < unit);
    lane.ops.get(at).map(|op| op.what)
}

fn mark_text(style: NvtxStyle, index: usize, step: &StepProgram) -> String {
    let Load {
        prefill_requests: prefills,
        prefill_tokens,
        decode_requests: decodes,
        decode_tokens,
    } = step.load;
    match style {
        NvtxStyle::Vllm => format!(
            "execute_context_{prefills}({prefill_tokens})_generation_{decodes}({decode_tokens})"
        ),
        NvtxStyle::VllmNew => format!("execute_new_{prefills}_cached_{decodes}"),
        NvtxStyle::Sglang => match step.kind {
            PhaseKind::Decode => format!("step[DECODE bs={decodes}]"),
            PhaseKind::Mixed => format!("step[MIXED bs={}]", decodes + prefills),
            PhaseKind::Prefill => format!("step[EXTEND bs={prefills} toks={prefill_tokens}]"),
        },
        NvtxStyle::Trtllm => {
            format!("[Executor] _forward_step {index}: {prefills} ctx reqs, {decodes} gen reqs")
        }
    }
}
