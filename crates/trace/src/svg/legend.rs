//! The legend: for each colour the time and the share of the step on each GPU.

use super::Panel;
use super::canvas::{Anchor, Canvas, Face, percent, thousands};
use super::palette::Fill;
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
    /// `None` where the colour is there and its time would be a wrong answer.
    pub(super) ns: Option<u64>,
}

/// The disjoint parts of a lane's step; they sum to it.
///
/// Beside opaque graphs the groups of the few eager kernels are no split of the step: they have one figure together.
pub(super) fn lines(panel: &Panel<'_>) -> Vec<Line> {
    let buckets = &panel.split.buckets;
    let opaque = buckets.graph_ns > 0;
    let mut lines = Vec::new();
    let mut eager = 0;
    for group in Group::ALL {
        let mut add = |word, fill, ns: u64| {
            let hidden = opaque && !matches!(group, Group::Copy | Group::Graph);
            if hidden {
                eager += ns;
            }
            if ns > 0 {
                let ns = (!hidden).then_some(ns);
                lines.push(Line {
                    word,
                    fill: Some(fill),
                    ns,
                });
            }
        };
        match (group, buckets.comm_service_ns, buckets.comm_wait_ns) {
            (Group::Comm, Some(service), Some(wait)) => {
                add("comm service", Fill::Group(group), service);
                add("comm wait", Fill::Wait, wait);
            }
            (Group::Graph, ..) => add("opaque graph", Fill::Group(group), buckets.graph_ns),
            _ => add(group.as_str(), Fill::Group(group), buckets.get(group)),
        }
    }
    let plain = |word, ns| Line {
        word,
        fill: None,
        ns: Some(ns),
    };
    if opaque {
        lines.push(plain("eager kernels", eager));
    }
    lines.push(plain("idle", buckets.idle_ns));
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
    for line in columns.iter().flatten() {
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
        let paint = match (fill, word) {
            (Some(fill), _) => fill.paint(),
            (None, "idle") => "#f1f1f1",
            // A sum of several colours has none.
            (None, _) => "none",
        };
        canvas.rect(LEFT, -11.0, 14.0, 14.0, paint, None);
        canvas.text(LEFT + 22.0, word, Anchor::Start, Face::PLAIN);
        for (at, (panel, lines)) in panels.iter().zip(&columns).enumerate() {
            let own = lines.iter().find(|line| line.word == word);
            let ns = own.map_or(Some(0), |line| line.ns);
            figures(canvas, right(at), ns, panel.split.step.dur(), Face::PLAIN);
        }
    }
    canvas.move_down(LINE);
    canvas.text(LEFT + 22.0, "step", Anchor::Start, Face::BOLD);
    for (at, panel) in panels.iter().enumerate() {
        let step = panel.split.step.dur();
        figures(canvas, right(at), Some(step), step, Face::BOLD);
    }
    canvas.move_down(8.0);
}

fn figures(canvas: &mut Canvas, left: f64, ns: Option<u64>, step: u64, face: Face) {
    let (time, share) = match ns {
        Some(ns) => (format!("{} ns", thousands(ns)), percent(ns, step)),
        None => ("n/a".to_owned(), "n/a".to_owned()),
    };
    canvas.text(left + COLUMN - 72.0, &time, Anchor::End, face);
    canvas.text(left + COLUMN - 8.0, &share, Anchor::End, face);
}
