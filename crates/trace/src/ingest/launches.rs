//! Launch calls and step marks: the host side of a trace.

use std::collections::{BTreeMap, HashMap};

use super::names::Strings;
use super::rows::PROCESS;
use super::{Connected, Tick, bulk};
use crate::timeline::{Lane, Launch, LaunchKind, Mark, Ops, Span};
use crate::{TraceError, steps};

const RUNTIME: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const NVTX: &str = "NVTX_EVENTS";

/// `eventType` of ranges: push/pop and start/end.
const RANGES: [i64; 2] = [59, 60];

/// The launch calls of every process, sorted by start.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// By `globalPid`.
    pub(crate) by_process: BTreeMap<i64, Vec<Launch>>,
    /// All rows of the table, launches or not.
    pub(crate) rows: u64,
    /// Driver calls inside a runtime call of the same correlation id.
    pub(crate) nested: u64,
}

impl Calls {
    /// Reads the API calls that put work on a GPU. An export without API trace gives none.
    pub(crate) async fn read(
        from: &mut Connected<'_>,
        strings: &Strings,
    ) -> Result<Self, TraceError> {
        let mut calls = Calls::default();
        let Some(table) = from.schema.table(RUNTIME) else {
            return Ok(calls);
        };
        let missing = table.missing(&["start", "end", "globalTid", "correlationId", "nameId"]);
        if !missing.is_empty() {
            from.lacks(RUNTIME, &missing, "launches");
            return Ok(calls);
        }
        let mut tick = Tick::new(from, RUNTIME);
        let sql = table.select(&["nameId", "start", "end", "globalTid", "correlationId"]);
        calls.rows = bulk::scan(from.connection, (from.path, RUNTIME), &sql, |row| {
            tick.row();
            let Some(&kind) = strings.launches.get(&row.int(0)) else {
                return;
            };
            let (start, end, thread) = (row.int(1), row.int(2), row.int(3));
            let dur = end.saturating_sub(start).clamp(0, i64::from(u32::MAX));
            let process = calls.by_process.entry(thread & PROCESS).or_default();
            process.push(Launch {
                corr: row.int(4) as u32,
                start,
                dur: dur as u32,
                tid: (thread & !PROCESS) as u32,
                kind,
            });
        })
        .await?;
        for launches in calls.by_process.values_mut() {
            calls.nested += outermost(launches);
        }
        Ok(calls)
    }
}

/// Sorts by start and drops calls inside another one of the same correlation id. Returns how many it dropped.
fn outermost(launches: &mut Vec<Launch>) -> u64 {
    let end = |call: &Launch| call.start.saturating_add(i64::from(call.dur));
    let before = launches.len();
    launches.sort_by_key(|call| (call.corr, call.start, std::cmp::Reverse(call.dur)));
    launches.dedup_by(|inner, outer| {
        inner.corr != 0 && inner.corr == outer.corr && end(inner) <= end(outer)
    });
    launches.sort_by_key(|call| (call.start, call.corr));
    (before - launches.len()) as u64
}

/// How GPU work and launch calls fit together, by (process, correlation id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Operations whose launch call is in the export.
    pub(crate) launched: u64,
    /// Operations whose launch call is not (launched before the capture, or no correlation id).
    pub(crate) orphans: u64,
    /// Operations that start before their launch call does.
    pub(crate) early: u64,
    /// Graph launches of which no GPU row of any kind is there.
    pub(crate) invisible_graphs: u64,
    /// Graph launches.
    pub(crate) graph_launches: u64,
}

impl Joined {
    /// Whether work is missing in earnest: a replay or two under way when the capture ended leave no rows either.
    pub(crate) fn hides_graphs(&self) -> bool {
        self.invisible_graphs > 2 && self.invisible_graphs * 10 >= self.graph_launches
    }

    /// Checks every operation of these lanes against the calls of its process.
    pub(crate) fn of(lanes: &HashMap<(i64, u32), Ops>, calls: &Calls) -> Self {
        let mut joined = Joined::default();
        for (&process, launches) in &calls.by_process {
            let mut index: Vec<(u32, i64, LaunchKind, bool)> = launches
                .iter()
                .map(|call| (call.corr, call.start, call.kind, false))
                .collect();
            index.sort_unstable_by_key(|&(corr, start, ..)| (corr, start));
            for (_, ops) in lanes.iter().filter(|((pid, _), _)| *pid == process) {
                joined.check(ops, &mut index);
            }
            let graphs = index
                .iter()
                .filter(|(.., kind, _)| *kind == LaunchKind::Graph);
            for (.., seen) in graphs {
                joined.graph_launches += 1;
                joined.invisible_graphs += u64::from(!seen);
            }
        }
        let without_calls = lanes
            .iter()
            .filter(|((process, _), _)| !calls.by_process.contains_key(process));
        joined.orphans += without_calls.map(|(_, ops)| ops.len() as u64).sum::<u64>();
        joined
    }

    fn check(&mut self, ops: &Ops, index: &mut [(u32, i64, LaunchKind, bool)]) {
        // All kernels of a graph replay carry the same id: look it up once.
        let mut last: Option<(u32, Option<usize>)> = None;
        for i in 0..ops.len() {
            let corr = ops.corr(i);
            let found = match last {
                Some((known, found)) if known == corr => found,
                _ if corr == 0 => None,
                _ => {
                    let at = index.partition_point(|&(id, ..)| id < corr);
                    (index.get(at).is_some_and(|&(id, ..)| id == corr)).then_some(at)
                }
            };
            last = Some((corr, found));
            match found {
                Some(at) => {
                    self.launched += 1;
                    self.early += u64::from(ops.start(i) < index[at].1);
                    // Several calls may share an id; all of them are then seen.
                    let mut same = at;
                    while !index[same].3 {
                        index[same].3 = true;
                        if index.get(same + 1).is_none_or(|next| next.0 != corr) {
                            break;
                        }
                        same += 1;
                    }
                }
                None => self.orphans += 1,
            }
        }
    }
}

/// The NVTX ranges of use to the step finder, and how many rows there are in all.
pub(crate) async fn marks(
    from: &mut Connected<'_>,
    strings: &Strings,
    file: u32,
) -> Result<(Vec<Mark>, u64), TraceError> {
    let mut marks = Vec::new();
    let Some(table) = from.schema.table(NVTX) else {
        return Ok((marks, 0));
    };
    let mut missing = table.missing(&["start", "end"]);
    if !table.has("text") && !table.has("textId") {
        missing.push("text".to_owned());
    }
    if !missing.is_empty() {
        from.lacks(NVTX, &missing, "step marks");
        return Ok((marks, 0));
    }
    let typed = table.has("eventType");
    let mut tick = Tick::new(from, NVTX);
    let sql = table.select(&["eventType", "textId", "text", "start", "end", "globalTid"]);
    let rows = bulk::scan(from.connection, (from.path, NVTX), &sql, |row| {
        tick.row();
        if typed && !RANGES.contains(&row.int(0)) {
            return;
        }
        let text = match row.text(2) {
            Some(text) => Some(text).filter(|text| steps::is_step_mark(text)),
            None => strings.marks.get(&row.int(1)).map(String::as_str),
        };
        if let Some(text) = text {
            // An open range has no end, which old exports write as 0.
            let (start, end) = (row.int(3), row.int(4));
            marks.push(Mark {
                file,
                global_tid: row.int(5),
                start,
                end: (end != 0 && end >= start).then_some(end),
                text: text.to_owned(),
            });
        }
    })
    .await?;
    marks.sort_by(|a, b| (a.start, a.global_tid, &a.text).cmp(&(b.start, b.global_tid, &b.text)));
    Ok((marks, rows))
}

/// Intervals in which the profiler itself worked, sorted.
pub(crate) async fn overhead(from: &mut Connected<'_>) -> Result<Vec<Span>, TraceError> {
    let mut spans = Vec::new();
    for name in ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"] {
        let Some(table) = from.schema.table(name) else {
            continue;
        };
        if !table.missing(&["start", "end"]).is_empty() {
            continue;
        }
        let sql = table.select(&["start", "end"]);
        bulk::scan(from.connection, (from.path, name), &sql, |row| {
            let (start, end) = (row.int(0), row.int(1));
            if end > start {
                spans.push(Span { start, end });
            }
        })
        .await?;
    }
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    Ok(spans)
}

/// Keeps the host side of the lanes' operations: calls and marks from the first launch of an operation that is still
/// there (the host runs ahead of the GPU) to the end of the window.
pub(crate) fn trim(calls: &mut Calls, marks: &mut Vec<Mark>, lanes: &[Lane], window: Span) {
    let mut earliest = BTreeMap::new();
    for (&process, launches) in &mut calls.by_process {
        let of_process = lanes.iter().filter(|lane| lane.id.global_pid == process);
        let mut ids: Vec<u32> = of_process
            .flat_map(|lane| (0..lane.ops.len()).map(|i| lane.ops.corr(i)))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let launched = launches
            .iter()
            .filter(|call| ids.binary_search(&call.corr).is_ok());
        let first = launched.map(|call| call.start).min();
        let first = first.unwrap_or(window.start).min(window.start);
        launches.retain(|call| (first..window.end).contains(&call.start));
        earliest.insert(process, first);
    }
    marks.retain(|mark| {
        let process = mark.global_tid & PROCESS;
        let first = earliest.get(&process).copied().unwrap_or(window.start);
        // The range around the first launch began before it.
        mark.start < window.end && mark.end.is_none_or(|end| end >= first)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(corr: u32, start: i64, dur: u32) -> Launch {
        Launch {
            corr,
            start,
            dur,
            tid: 1,
            kind: LaunchKind::Graph,
        }
    }

    #[test]
    fn only_the_outer_of_two_nested_calls_stays() {
        let mut calls = vec![
            call(7, 105, 10),
            call(7, 100, 20),
            call(0, 90, 5),
            call(0, 91, 2),
            call(7, 500, 20),
            call(8, 95, 3),
        ];
        assert_eq!(outermost(&mut calls), 1);
        let starts: Vec<i64> = calls.iter().map(|call| call.start).collect();
        assert_eq!(starts, [90, 91, 95, 100, 500]);
    }
}
