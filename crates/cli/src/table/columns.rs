//! Which numbers stand in which table.

use linktax_metrics::server_means;
use linktax_records::CellEntry;
use serde_json::{Map, Value};

use super::layout::Grid;
use super::word;

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

pub(super) fn throughput(cells: &[&CellEntry]) -> Grid {
    let headers = vec![
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
    ];
    let mut rows = Vec::new();
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
        rows.push(row);
    }
    Grid { headers, rows }
}

pub(super) fn decode(cells: &[&CellEntry]) -> Grid {
    let headers = vec![
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
    ];
    let mut rows = Vec::new();
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
        rows.push(row);
    }
    Grid { headers, rows }
}

pub(super) fn server(cells: &[&CellEntry]) -> Grid {
    let headers = vec![
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
    ];
    let mut rows = Vec::new();
    for cell in cells {
        let n = numbers(cell);
        let server = cell.server.clone().unwrap_or_default();
        let means = server_means(&server);
        let client = cell.client.as_ref();
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
            match server.prefix_caching {
                Some(false) => "off".to_owned(),
                _ => percent(server.prefix_hit_rate().map(|r| 100.0 * r)),
            },
            known(server.preemptions),
            known(server.running_peak),
            known(server.waiting_peak),
            show(means.ttft_ms, 1),
            show(difference, 1),
            show(means.itl_ms, 2),
            show(accepted, 2),
            client.map_or_else(
                || "unknown".to_owned(),
                |c| format!("{:.0} %", c.loop_cpu_pct),
            ),
            show(client.and_then(|c| c.timer_lag_p99_ms), 2),
            percent(client.and_then(|c| Some(100.0 * c.coalesced_share?))),
        ]);
        rows.push(row);
    }
    Grid { headers, rows }
}

/// Arrival and objectives: only of open loops and where there are objectives.
pub(super) fn service(cells: &[&CellEntry]) -> Option<Grid> {
    let open = |cell: &CellEntry| cell.spec.load.concurrency().is_none();
    let judged = |cell: &CellEntry| numbers(cell).get("request_goodput").is_some();
    if !cells.iter().any(|c| open(c) || judged(c)) {
        return None;
    }
    let headers = vec![
        "in",
        "out",
        "C",
        "target req/s",
        "sent req/s",
        "done req/s",
        "send lag max",
        "TTFT from due p50",
        "TTFT from due p99",
        "goodput req/s",
        "SLO met",
        "objectives",
    ];
    let mut rows = Vec::new();
    for cell in cells {
        let n = numbers(cell);
        let objectives: Vec<&str> =
            n.0.get("slos")
                .and_then(Value::as_array)
                .map(|all| all.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
        let met = n.get("slo_attainment").map(|share| 100.0 * share);
        let mut row = coordinates(cell).to_vec();
        row.extend([
            n.show("target_rate", 2),
            n.show("achieved_rate", 2),
            n.show("request_throughput", 2),
            n.show("max_send_lag_ms", 1),
            n.show("median_ttft_from_sched_ms", 1),
            n.p99("ttft_from_sched", 1),
            n.show("request_goodput", 2),
            met.map_or_else(|| "n/a".to_owned(), |m| format!("{m:.1} %")),
            objectives.join(" "),
        ]);
        rows.push(row);
    }
    Some(Grid { headers, rows }.without_empty_columns())
}
