//! The bars of one row.

use super::axis::Axis;
use super::canvas::{BAR_TEXT, Canvas, width_of};
use super::palette::Fill;
use super::{Panel, ROW, thousands};
use crate::classify::{Class, Classes, Group};
use crate::collectives::Collectives;
use crate::tracks::{Track, Waits};
use crate::{OpKind, Trace};

/// Narrower bars are joined into one element: nobody can point at them, and there are hundreds a step.
const NARROW: f64 = 2.0;
/// Gaps below this between bars of one colour cannot be seen.
const SEAM: f64 = 0.05;

/// What the bars are drawn from.
pub(super) struct Sources<'a> {
    pub(super) trace: &'a Trace,
    pub(super) classes: &'a Classes,
    pub(super) collectives: Option<&'a Collectives>,
}

/// A stretch of one colour.
struct Bar {
    from: f64,
    to: f64,
    fill: Fill,
    op: usize,
    class: Class,
}

pub(super) fn draw(
    canvas: &mut Canvas,
    panel: &Panel<'_>,
    track: &Track,
    axis: &Axis,
    sources: &Sources<'_>,
) {
    let waits = Waits::of(sources.collectives, panel.at);
    let bars = bars(panel, track, axis, sources, &waits);
    let (wide, narrow): (Vec<Bar>, Vec<Bar>) = bars
        .into_iter()
        .partition(|bar| bar.to - bar.from >= NARROW);
    for (fill, runs) in runs(&narrow) {
        canvas.bars(&runs, 2.0, ROW - 4.0, fill.paint());
    }
    for bar in &wide {
        let tip = tip(panel, sources, &waits, bar);
        let width = bar.to - bar.from;
        canvas.rect(
            bar.from,
            2.0,
            width,
            ROW - 4.0,
            bar.fill.paint(),
            Some(&tip),
        );
        let word = match bar.fill {
            // Hatching leaves nothing to read on.
            Fill::Wait => continue,
            Fill::Group(_) => bar.class.as_str(),
        };
        if width_of(word, BAR_TEXT) + 6.0 <= width {
            canvas.bar_text((bar.from + bar.to) / 2.0, 15.5, word, bar.fill.ink());
        }
    }
}

fn bars(
    panel: &Panel<'_>,
    track: &Track,
    axis: &Axis,
    sources: &Sources<'_>,
    waits: &Waits,
) -> Vec<Bar> {
    let ops = &panel.lane.ops;
    let mut bars = Vec::with_capacity(track.ops.len());
    for &i in &track.ops {
        let op = ops.get(i);
        let class = sources.classes.op(&op);
        let mut add = |from: i64, to: i64, fill| {
            let (from, to) = (axis.x(panel.offset(from)), axis.x(panel.offset(to)));
            if from < to {
                bars.push(Bar {
                    from,
                    to,
                    fill,
                    op: i,
                    class,
                });
            }
        };
        let wait = waits.get(i).filter(|_| class.group() == Group::Comm);
        let served = op
            .start
            .saturating_add_unsigned(wait.unwrap_or(0).min(op.dur));
        add(op.start, served, Fill::Wait);
        add(served, op.end(), Fill::Group(class.group()));
    }
    bars
}

/// Bars by colour; neighbours of one colour without a visible gap are one.
fn runs(bars: &[Bar]) -> Vec<(Fill, Vec<(f64, f64)>)> {
    let mut by_fill: std::collections::BTreeMap<Fill, Vec<(f64, f64)>> = Default::default();
    let mut last = None;
    for bar in bars {
        let runs = by_fill.entry(bar.fill).or_default();
        match runs.last_mut() {
            Some(run) if last == Some(bar.fill) && bar.from - run.1 < SEAM => run.1 = bar.to,
            _ => runs.push((bar.from, bar.to)),
        }
        last = Some(bar.fill);
    }
    by_fill.into_iter().collect()
}

fn tip(panel: &Panel<'_>, sources: &Sources<'_>, waits: &Waits, bar: &Bar) -> String {
    let op = panel.lane.ops.get(bar.op);
    let name = match op.kind {
        OpKind::Kernel => sources.trace.names.short(op.name),
        OpKind::Graph => "CUDA graph (opaque)",
        OpKind::Memcpy(_) | OpKind::Memset => bar.class.as_str(),
    };
    let mut text = format!("{name}: {}, {} ns", bar.class, thousands(op.dur));
    if let Some(wait) = waits.get(bar.op) {
        let wait = wait.min(op.dur);
        text += &format!(
            " (service {} ns, wait {} ns)",
            thousands(op.dur - wait),
            thousands(wait)
        );
    }
    if op.bytes > 0 && op.kind != OpKind::Graph {
        text += &format!(", {} bytes", thousands(op.bytes));
    }
    text
}
