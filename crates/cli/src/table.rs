//! The tables of a run: what an engineer pastes into a report.

mod columns;
pub(crate) mod layout;

use crate::bench::failure;
use layout::wrap;
use linktax_records::{CellEntry, CellStatus, Note, RunManifest, RunStatus, VerdictStatus};
use serde_json::Value;

/// The whole result: warnings on top, then throughput and latency, decode and stalls, server and client. `width` is
/// that of the terminal, if it is one.
pub(crate) fn render(manifest: &RunManifest, width: Option<usize>) -> String {
    let mut out = String::new();
    let say = |out: &mut String, text: &str| out.push_str(&wrap(text, width));
    say(&mut out, &heading(manifest));
    for line in warnings(manifest) {
        say(&mut out, &format!("! {line}\n"));
    }
    let measured: Vec<&CellEntry> = manifest
        .cells
        .iter()
        .filter(|c| c.results.is_some())
        .collect();
    if measured.is_empty() {
        out.push_str("no cell was measured\n");
        return out;
    }
    let mut tables = vec![("Throughput and latency", columns::throughput(&measured))];
    tables.extend(columns::service(&measured).map(|t| ("Arrival and objectives", t)));
    tables.push(("Decode and stalls", columns::decode(&measured)));
    tables.push(("Server and client", columns::server(&measured)));
    for (title, table) in tables {
        out.push_str(&format!("\n{title}\n{}\n", table.render(width)));
    }
    say(&mut out, LEGEND);
    for line in remarks(&measured) {
        say(&mut out, &format!("- {line}\n"));
    }
    out
}

const LEGEND: &str = "
TTFT, TPOT, gaps in ms; a number marked ^ is the maximum, because too few requests make a p99. decode = kept tokens / \
kept gap time, stalls left out; usual = mean over requests of (n-1)/(last - first token), stalls included. \
Definitions: docs/metrics.md.
";

fn heading(manifest: &RunManifest) -> String {
    let server = manifest.servers.first();
    let text = |key: &str| {
        server
            .and_then(|s| s.get(key))
            .and_then(Value::as_str)
            .unwrap_or("unknown")
    };
    let urls: Vec<&str> = manifest
        .servers
        .iter()
        .filter_map(|s| s.get("base_url")?.as_str())
        .collect();
    let gpus = match manifest.gpus.count {
        Some(n) => format!("{n} GPU(s) ({})", manifest.gpus.source),
        None => "number of GPUs unknown (--gpus)".to_owned(),
    };
    format!(
        "linktax {}, arm {}: {}, server version {}, {gpus}, seed {}, nonce {}\n",
        manifest.tool.version,
        manifest.arm,
        urls.join(" + "),
        text("version"),
        manifest.seed,
        manifest.nonce
    )
}

/// Everything that makes a cell, or the run, less than clean.
fn warnings(manifest: &RunManifest) -> Vec<String> {
    let mut lines = Vec::new();
    if manifest.status == RunStatus::Incomplete {
        let done = manifest
            .cells
            .iter()
            .filter(|c| c.status == CellStatus::Complete)
            .count();
        lines.push(format!(
            "INCOMPLETE: {done} of {} cells ran to their end; go on with --resume",
            manifest.cells.len()
        ));
    }
    let mut reasons = Merged::default();
    for cell in &manifest.cells {
        let Some(verdict) = &cell.verdict else {
            continue;
        };
        for reason in &verdict.reasons {
            reasons.add(cell, Some(verdict.status), reason);
        }
        for note in verdict.notes.iter().filter(|n| n.code == failure::CODE) {
            reasons.add(cell, None, note);
        }
    }
    lines.extend(reasons.lines());
    lines.extend(
        manifest
            .notes
            .iter()
            .map(|n| format!("{}: {}", n.code, n.message)),
    );
    lines
}

/// Notes on cells that the tables do not show already.
fn remarks(cells: &[&CellEntry]) -> Vec<String> {
    let mut merged = Merged::default();
    for cell in cells {
        let hit_rate = cell.server.as_ref().and_then(|s| s.prefix_hit_rate());
        let shown = |code: &str| match code {
            // The mark ^, and the column "ours - server".
            "percentiles" | "server_ttft" => true,
            // Among the warnings.
            failure::CODE => true,
            // Tokens that were not cached were computed, whether the answers say so or not.
            "prefill_tokens" => hit_rate.is_some_and(|rate| rate < 0.01),
            _ => false,
        };
        let notes = cell.verdict.iter().flat_map(|v| &v.notes);
        for note in notes.filter(|n| !shown(&n.code)) {
            merged.add(cell, None, note);
        }
    }
    merged.lines()
}

/// Notes with the cells they are about; what several cells have in common is told once.
#[derive(Default)]
struct Merged<'a>(Vec<Shared<'a>>);

struct Shared<'a> {
    status: Option<VerdictStatus>,
    /// As the first cell has it.
    note: &'a Note,
    cells: Vec<u32>,
    /// Whether all have it in these words.
    alike: bool,
}

impl<'a> Merged<'a> {
    fn add(&mut self, cell: &CellEntry, status: Option<VerdictStatus>, note: &'a Note) {
        let number = cell.spec.index + 1;
        let known = |s: &&mut Shared<'_>| s.status == status && s.note.code == note.code;
        match self.0.iter_mut().find(known) {
            Some(shared) => {
                // A cell can have two notes of one code.
                if shared.cells.last() != Some(&number) {
                    shared.cells.push(number);
                }
                shared.alike &= shared.note.message == note.message;
            }
            None => self.0.push(Shared {
                status,
                note,
                cells: vec![number],
                alike: true,
            }),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.0.iter().map(Shared::line).collect()
    }
}

impl Shared<'_> {
    fn line(&self) -> String {
        let list: Vec<String> = self.cells.iter().map(u32::to_string).collect();
        let noun = if list.len() > 1 { "cells" } else { "cell" };
        let status = match self.status {
            Some(status) => format!(" ({})", word(status)),
            None => String::new(),
        };
        let rest = match (self.alike, list.len()) {
            (true, _) => String::new(),
            (false, 1) => " (and more of this)".to_owned(),
            (false, _) => format!(" (this is cell {}; the others are alike)", list[0]),
        };
        format!(
            "{noun} {}{status}: {}: {}{rest}",
            list.join(", "),
            self.note.code,
            self.note.message
        )
    }
}

const fn word(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Valid => "valid",
        VerdictStatus::Flagged => "flagged",
        VerdictStatus::Invalid => "invalid",
    }
}
