//! The legend: for each colour the time and the share of the step on each GPU.

use super::canvas::{Anchor, Canvas, Face, percent, thousands};
use super::palette::Fill;
use super::Panel;
use crate::classify::Group;

const LEFT: f64 = 16.0;
/// Swatch and word.
const WORDS: f64 = 140.0;
/// Time and share of one GPU.
const COLUMN: f64 = 215.0;
const LINE: f64 = 19.0;

/// One line of the legend for one lane.
pub(super) struct Line {
    pub(super) word: &'static str,
    pub(super) fill: Option<Fill>,
    pub(super) ns: u64,
}

/// The disjoint parts of a lane's step; they sum to it.
pub(super) fn lines(panel: &Panel<'_>) -> Vec<Line> {
    let buckets = &panel.split.buckets;
    let mut lines = Vec::new();
    for group in Group::ALL {
        let fill = Some(Fill::Group(group));
        let line = |word, fill, ns| Line { word, fill, ns };
        match (group, buckets.comm_service_ns, buckets.comm_wait_ns) {
            (Group::Comm, Some(service), Some(wait)) => {
                lines.push(line("comm service", fill, service));
                lines.push(line("comm wait", Some(Fill::Wait), wait));
            }
            _ => lines.push(line(group.as_str(), fill, buckets.get(group))),
        }
    }
    lines.push(Line {
        word: "idle",
        fill: None,
        ns: buckets.idle_ns,
    });
    lines
}

pub(super) fn draw(canvas: &mut Canvas, panels: &[Panel<'_>]) {
    let fitting = ((canvas.width() - 2.0 * LEFT - WORDS) / COLUMN)
        .floor()
        .max(1.0);
    for block in panels.chunks(fitting as usize) {
        draw_block(canvas, block);
    }
}

fn draw_block(canvas: &mut Canvas, panels: &[Panel<'_>]) {
    let columns: Vec<Vec<Line>> = panels.iter().map(lines).collect();
    let mut words: Vec<(&'static str, Option<Fill>)> = Vec::new();
    for line in columns.iter().flatten().filter(|line| line.ns > 0) {
        if !words.contains(&(line.word, line.fill)) {
            words.push((line.word, line.fill));
        }
    }
    // In the order of the groups, idle last, whichever lane brought a line in.
    words.sort_by_key(|&(_, fill)| match fill {
        Some(Fill::Wait) => (Some(Fill::Group(Group::Comm)), true),
        _ => (fill, false),
    });
    words.sort_by_key(|&(_, fill)| fill.is_none());
    let right = |at: usize| LEFT + WORDS + COLUMN * at as f64;
    canvas.move_down(18.0);
    for (at, panel) in panels.iter().enumerate() {
        let head = format!("GPU {}", panel.at);
        canvas.text(right(at) + COLUMN - 8.0, &head, Anchor::End, Face::BOLD);
    }
    for (word, fill) in words {
        canvas.move_down(LINE);
        if let Some(fill) = fill {
            canvas.rect(LEFT, -11.0, 14.0, 14.0, fill.paint(), None);
        } else {
            canvas.rect(LEFT, -11.0, 14.0, 14.0, "#f1f1f1", None);
        }
        canvas.text(LEFT + 22.0, word, Anchor::Start, Face::PLAIN);
        for (at, (panel, lines)) in panels.iter().zip(&columns).enumerate() {
            let ns = lines.iter().filter(|l| l.word == word).map(|l| l.ns).sum();
            figures(canvas, right(at), ns, panel.split.step.dur(), Face::PLAIN);
        }
    }
    canvas.move_down(LINE);
    canvas.text(LEFT + 22.0, "step", Anchor::Start, Face::BOLD);
    for (at, panel) in panels.iter().enumerate() {
        let step = panel.split.step.dur();
        figures(canvas, right(at), step, step, Face::BOLD);
    }
    canvas.move_down(8.0);
}

fn figures(canvas: &mut Canvas, left: f64, ns: u64, step: u64, face: Face) {
    let time = format!("{} ns", thousands(ns));
    canvas.text(left + COLUMN - 72.0, &time, Anchor::End, face);
    canvas.text(left + COLUMN - 8.0, &percent(ns, step), Anchor::End, face);
}
