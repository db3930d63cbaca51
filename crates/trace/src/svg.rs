//! One step as a picture: a lane a GPU, a row a stream, coloured by group, with a legend of exact times.
//!
//! The SVG is self-contained (no font, style sheet or script from outside), the same for the same input, and has a title
//! and a description for readers who do not see it. The legend's figures are the disjoint buckets of the split, so they
//! sum to the step.

mod axis;
mod canvas;
mod legend;
mod palette;
mod rows;

use crate::classify::{Classes, Group};
use crate::collectives::Collectives;
use crate::split::{LaneSplit, StepSplit, lane_of};
use crate::tracks::{Track, first_and_last, lane_title, step_words, tracks, within};
use crate::{Lane, Trace, TraceError};

use axis::Axis;
use canvas::{Anchor, Canvas, Face, percent, thousands};
use palette::{Fill, fills};

/// What to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SvgOptions {
    /// Index of the step.
    pub step: u32,
    /// Width in pixels; at least 640.
    pub width: u32,
    /// What the capture is called; part of the heading.
    pub label: String,
}

impl SvgOptions {
    /// Width of a page.
    pub const WIDTH: u32 = 1200;

    /// A step at the usual width.
    pub fn step(step: u32, label: impl Into<String>) -> Self {
        SvgOptions {
            step,
            width: Self::WIDTH,
            label: label.into(),
        }
    }
}

/// More operations than this are no step, and no picture either.
const MAX_OPS: u64 = 100_000;
/// Left of the rows: names of streams.
const LEFT: f64 = 112.0;
/// Right of the rows: half a tick label.
const RIGHT: f64 = 40.0;
const LANE_HEAD: f64 = 22.0;
const ROW: f64 = 24.0;
const LANE_GAP: f64 = 14.0;

/// One lane of the picture.
struct Panel<'a> {
    at: usize,
    lane: &'a Lane,
    split: &'a StepSplit,
    tracks: Vec<Track>,
    /// Instant at the left edge: lanes of one file share a clock, lanes of different files do not.
    base: i64,
}

/// Draws one step of every lane that has it.
///
/// # Errors
/// No lane has the step, or it has more operations than a picture can show.
pub fn step_svg(
    trace: &Trace,
    classes: &Classes,
    splits: &[LaneSplit],
    collectives: Option<&Collectives>,
    options: &SvgOptions,
) -> Result<String, TraceError> {
    let panels = panels(trace, splits, options.step)?;
    let ends = panels.iter().map(|p| p.split.step.end.abs_diff(p.base));
    let width = f64::from(options.width.max(640));
    let axis = Axis::new(LEFT, width - RIGHT, ends.max().unwrap_or(0));
    let mut canvas = Canvas::new(width);
    heading(&mut canvas, &panels, options);
    axis.draw(&mut canvas, height_of(&panels));
    for panel in &panels {
        draw_lane(&mut canvas, panel, &axis, trace, classes, collectives);
    }
    legend::draw(&mut canvas, &panels);
    let wait = fills(&panels).contains(&Fill::Wait);
    Ok(canvas.finish(
        options.step,
        &title(&panels, options),
        &description(&panels),
        wait,
    ))
}

fn panels<'a>(
    trace: &'a Trace,
    splits: &'a [LaneSplit],
    step: u32,
) -> Result<Vec<Panel<'a>>, TraceError> {
    let mut panels = Vec::new();
    let mut found = 0;
    for lane_split in splits {
        let Some(split) = lane_split.steps.iter().find(|s| s.step.index == step) else {
            continue;
        };
        let lane = lane_of(trace, lane_split.lane)?;
        let shown = || within(&lane.ops, split.step.start, split.step.end);
        found += shown().count() as u64;
        if found > MAX_OPS {
            return Err(TraceError::TooManyOps {
                found,
                limit: MAX_OPS,
                hint: "this is more than a step of a decoding server; see how the steps were found (trace steps)",
            });
        }
        panels.push(Panel {
            at: lane_split.lane,
            lane,
            split,
            tracks: tracks(&lane.ops, shown()),
            base: split.step.start,
        });
    }
    if panels.is_empty() {
        let steps = splits.iter().flat_map(|lane| &lane.steps).map(|s| &s.step);
        return Err(TraceError::NoSuchStep {
            wanted: step.to_string(),
            there: first_and_last(steps),
        });
    }
    let starts: Vec<(u32, i64)> = panels.iter().map(|p| (p.lane.id.file, p.base)).collect();
    for panel in &mut panels {
        let own = starts.iter().filter(|s| s.0 == panel.lane.id.file);
        panel.base = own.map(|s| s.1).min().unwrap_or(panel.base);
    }
    Ok(panels)
}

fn height_of(panels: &[Panel<'_>]) -> f64 {
    let lane = |p: &Panel<'_>| LANE_HEAD + ROW * p.tracks.len() as f64 + LANE_GAP;
    panels.iter().map(lane).sum()
}

fn title(panels: &[Panel<'_>], options: &SvgOptions) -> String {
    let first = panels.first().map(|p| &p.split.step);
    let words = first
        .map(|s| step_words(s.kind, s.batch))
        .unwrap_or_default();
    format!("Step {} ({words}) of {}", options.step, options.label)
}

fn description(panels: &[Panel<'_>]) -> String {
    let mut text = format!(
        "Timeline of one step on {} GPU{}.",
        panels.len(),
        if panels.len() == 1 { "" } else { "s" }
    );
    for panel in panels {
        let step = panel.split.step.dur();
        let shares: Vec<String> = legend::lines(panel)
            .into_iter()
            .filter_map(|line| Some((line.word, line.ns.filter(|&ns| ns > 0)?)))
            .map(|(word, ns)| format!("{word} {}", percent(ns, step)))
            .collect();
        text += &format!(
            " GPU {}: {} ns, of which {}.",
            panel.at,
            thousands(step),
            shares.join(", ")
        );
    }
    text
}

fn heading(canvas: &mut Canvas, panels: &[Panel<'_>], options: &SvgOptions) {
    let space = canvas.width() - 2.0 * 16.0;
    canvas.move_down(28.0);
    let head = title(panels, options);
    canvas.text(
        16.0,
        &canvas::fit(&head, space, 17.0),
        Anchor::Start,
        Face::TITLE,
    );
    canvas.move_down(20.0);
    let longest = panels.iter().map(|p| p.split.step.dur()).max().unwrap_or(0);
    let mut words = format!("{} ns", thousands(longest));
    if panels.len() > 1 {
        words = format!("longest of {} GPUs: {words}", panels.len());
    }
    let files = panels
        .iter()
        .any(|p| Some(p.lane.id.file) != panels.first().map(|q| q.lane.id.file));
    if files {
        words += "; lanes of different files begin at 0 each, for their clocks are their own";
    }
    canvas.text(
        16.0,
        &canvas::fit(&words, space, 12.0),
        Anchor::Start,
        Face::FAINT,
    );
    canvas.move_down(26.0);
}

fn draw_lane(
    canvas: &mut Canvas,
    panel: &Panel<'_>,
    axis: &Axis,
    trace: &Trace,
    classes: &Classes,
    collectives: Option<&Collectives>,
) {
    let name = panel.lane.gpu.name.as_deref().unwrap_or_default();
    let head = format!("{} {name}", lane_title(panel.at, panel.lane));
    canvas.move_down(LANE_HEAD - 6.0);
    let space = axis.right() - LEFT;
    canvas.text(
        LEFT,
        &canvas::fit(head.trim_end(), space, 12.0),
        Anchor::Start,
        Face::BOLD,
    );
    canvas.move_down(6.0);
    let step = &panel.split.step;
    let (from, to) = (
        axis.x(panel.offset(step.start)),
        axis.x(panel.offset(step.end)),
    );
    for track in &panel.tracks {
        let label = canvas::fit(&track.label(), LEFT - 16.0, 11.0);
        canvas.text_at(LEFT - 8.0, 16.0, &label, Anchor::End, Face::SMALL);
        canvas.rect(from, 2.0, to - from, ROW - 4.0, "#f1f1f1", None);
        rows::draw(
            canvas,
            panel,
            track,
            axis,
            &rows::Sources {
                trace,
                classes,
                collectives,
            },
        );
        canvas.move_down(ROW);
    }
    canvas.move_down(LANE_GAP);
}

impl Panel<'_> {
    /// Nanoseconds from the left edge, within the step.
    fn offset(&self, at: i64) -> u64 {
        let step = &self.split.step;
        u64::try_from(at.clamp(step.start, step.end).saturating_sub(self.base)).unwrap_or(0)
    }

    fn has(&self, group: Group) -> bool {
        self.split.unioned.get(group) > 0
    }
}

#[cfg(test)]
mod tests;
