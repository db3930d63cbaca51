//! The tables of a run: what an engineer pastes into a report.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use linktax_metrics::server_means;
use linktax_records::{CellEntry, CellStatus, RunManifest, RunStatus, VerdictStatus};
use serde_json::{Map, Value};

/// The whole result: warnings on top, then throughput and latency, decode and stalls, server and client.
pub(crate) fn render(manifest: &RunManifest) -> String {
    let mut out = String::new();
    out.push_str(&heading(manifest));
    for line in warnings(manifest) {
        out.push_str(&format!("! {line}\n"));
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
    for (title, table) in [
        ("Throughput and latency", throughput(&measured)),
        ("Decode and stalls", decode(&measured)),
        ("Server and client", server(&measured)),
    ] {
        out.push_str(&format!("\n{title}\n{table}\n"));
    }
    out.push_str(LEGEND);
    for line in remarks(&measured) {
        out.push_str(&format!("- {line}\n"));
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
    let gpus = match manifest.gpus.count {
        Some(n) => format!("{n} GPU(s) ({})", manifest.gpus.source),
        None => "number of GPUs unknown (--gpus)".to_owned(),
    };
    format!(
        "linktax {} arm {:?}: {} x {}, server version {}, {gpus}, seed {}, nonce {}\n",
        manifest.tool.version,
        manifest.arm,
        manifest.servers.len(),
        text("base_url"),
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
    for cell in &manifest.cells {
        let Some(verdict) = &cell.verdict else {
            continue;
        };
        for reason in &verdict.reasons {
            lines.push(format!(
                "cell {} ({}): {}: {}",
                cell.spec.index + 1,
                word(verdict.status),
                reason.code,
                reason.message
            ));
        }
    }
    lines.extend(
        manifest
            .notes
            .iter()
            .map(|n| format!("{}: {}", n.code, n.message)),
    );
    lines
}

/// Notes on cells, the same note of several cells told once.
fn remarks(cells: &[&CellEntry]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<u32>)> = Vec::new();
    for cell in cells {
        for note in cell.verdict.iter().flat_map(|v| &v.notes) {
            // These two are in the tables already: the mark ^, and the column "ours - server".
            if note.code == "percentiles" || note.code == "server_ttft" {
                continue;
            }
            let text = format!("{}: {}", note.code, note.message);
            match lines.iter_mut().find(|(t, _)| *t == text) {
                Some((_, seen)) => seen.push(cell.spec.index + 1),
                None => lines.push((text, vec![cell.spec.index + 1])),
            }
        }
    }
    lines
        .into_iter()
        .map(|(text, seen)| {
            let seen: Vec<String> = seen.iter().map(u32::to_string).collect();
            format!("cell {}: {text}", seen.join(", "))
        })
        .collect()
}

const fn word(status: VerdictStatus) -> &'static str {
    match status {
        VerdictStatus::Valid => "valid",
        VerdictStatus::Flagged => "flagged",
        VerdictStatus::Invalid => "invalid",
    }
}

/// Numbers of one cell by key.
struct Numbers<'a>(&'a Map<String, Value>);

impl Numbers<'_> {
    fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    fn show(&self, key: &str, digits: usize) -> String {
        show(self.get(key), digits)
    }

    /// The 99th percentile, or the maximum marked as such.
    fn p99(&self, family: &str, digits: usize) -> String {
        match self.get(&format!("p99_{family}_ms")) {
            Some(p99) => show(Some(p99), digits),
            None => match self.get(&format!("max_{family}_ms")) {
                Some(max) => format!("{max:.digits$}^"),
                None => "n/a".to_owned(),
            },
        }
    }
}

fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |v| format!("{v:.digits$}"))
}

fn new_table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headers);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn coordinates(cell: &CellEntry) -> [String; 3] {
    let length = |l: Option<u64>| l.map_or_else(|| "file".to_owned(), |l| l.to_string());
    [
        length(cell.spec.input_len),
        length(cell.spec.output_len),
        cell.spec.load.to_string(),
    ]
}

fn numbers(cell: &CellEntry) -> Numbers<'_> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    Numbers(cell.results.as_ref().unwrap_or(&EMPTY))
}

fn throughput(cells: &[&CellEntry]) -> Table {
    let mut table = new_table(&[
        "in",
        "out",
        "C",
        "ok",
        "fail",
        "TTFT p50",
        "TTFT p99",
        "TPOT mean",
        "E2E mean",
        "out tok/s",
        "steady",
        "out/GPU",
        "total tok/s",
        "prefill tok/s",
        "verdict",
    ]);
    for cell in cells {
        let n = numbers(cell);
        let mut row = coordinates(cell).to_vec();
        row.extend([
            n.show("completed", 0),
            n.show("failed", 0),
            n.show("median_ttft_ms", 1),
            n.p99("ttft", 1),
            n.show("mean_tpot_ms", 2),
            n.show("mean_e2el_ms", 0),
            n.show("output_throughput", 1),
            n.show("steady_output_throughput", 1),
            n.show("output_throughput_per_gpu", 1),
            n.show("total_token_throughput", 0),
            n.show("prefill_throughput", 0),
            cell.verdict
                .as_ref()
                .map_or("unknown", |v| word(v.status))
                .to_owned(),
        ]);
        table.add_row(row);
    }
    table
}

fn decode(cells: &[&CellEntry]) -> Table {
    let mut table = new_table(&[
        "in",
        "out",
        "C",
        "decode tok/s",
        "usual tok/s",
        "gap p50",
        "gap p99",
        "tok/chunk",
        "stall s",
        "stalls",
        "threshold",
        "longest normal",
        "shortest stall",
        "same answer",
        "separable",
        "agree",
    ]);
    for cell in cells {
        let n = numbers(cell);
        let separable =
            n.0.get("stall_separable")
                .and_then(Value::as_str)
                .unwrap_or("n/a")
                .replace('_', " ");
        let range = match (n.get("same_answer_from_ms"), n.get("same_answer_to_ms")) {
            (Some(from), Some(to)) => format!("{from:.1}-{to:.1}"),
            (Some(from), None) => format!("over {from:.1}"),
            _ => "n/a".to_owned(),
        };
        let agree = n.get("stall_interference_agreement").map(|a| 100.0 * a);
        let mut row = coordinates(cell).to_vec();
        row.extend([
            n.show("decode_tok_s", 1),
            n.show("usual_decode_tok_s", 1),
            n.show("median_step_gap_ms", 2),
            n.p99("step_gap", 2),
            n.show("tokens_per_chunk", 2),
            n.show("stall_s", 2),
            n.show("stall_count", 0),
            n.show("stall_threshold_ms", 1),
            n.show("longest_normal_gap_ms", 1),
            n.show("shortest_stall_ms", 1),
            range,
            separable,
            agree.map_or_else(|| "n/a".to_owned(), |a| format!("{a:.0} %")),
        ]);
        table.add_row(row);
    }
    table
}

fn server(cells: &[&CellEntry]) -> Table {
    let mut table = new_table(&[
        "in",
        "out",
        "C",
        "cache",
        "hit rate",
        "preempt",
        "run peak",
        "wait peak",
        "server TTFT",
        "ours - server",
        "server ITL",
        "accepted",
        "client CPU",
        "lag p99",
        "coalesced",
    ]);
    for cell in cells {
        let n = numbers(cell);
        let server = cell.server.clone().unwrap_or_default();
        let means = server_means(&server);
        let client = cell.client.clone().unwrap_or_default();
        let percent =
            |v: Option<f64>| v.map_or_else(|| "unknown".to_owned(), |v| format!("{v:.1} %"));
        let known = |v: Option<f64>| v.map_or_else(|| "unknown".to_owned(), |v| format!("{v:.0}"));
        let difference = n.get("mean_ttft_ms").zip(means.ttft_ms).map(|(a, b)| a - b);
        let accepted = server
            .spec_decode
            .as_ref()
            .and_then(|s| s.acceptance_length());
        let mut row = coordinates(cell).to_vec();
        row.extend([
            cell.spec.cache.to_string(),
            percent(server.prefix_hit_rate().map(|r| 100.0 * r)),
            known(server.preemptions),
            known(server.running_peak),
            known(server.waiting_peak),
            show(means.ttft_ms, 1),
            show(difference, 1),
            show(means.itl_ms, 2),
            show(accepted, 2),
            format!("{:.0} %", client.loop_cpu_pct),
            show(client.timer_lag_p99_ms, 2),
            percent(client.coalesced_share.map(|s| 100.0 * s)),
        ]);
        table.add_row(row);
    }
    table
}
