use std::fmt::Write;

use serde_json::{Map, Value};

/// The block that `vllm bench serve` prints at its end, with its labels and columns, which scripts parse.
///
/// `result` is a map of [`super::vllm_bench_result`] or of a file of vLLM's. A number that was not measured
/// reads `n/a`.
pub fn console(result: &Map<String, Value>) -> String {
    let mut out = Block::default();
    out.title(" Serving Benchmark Result ", '=');
    out.count("Successful requests:", result.get("completed"));
    out.count("Failed requests:", result.get("failed"));
    if let Some(cap) = result.get("max_concurrency").filter(|v| !v.is_null()) {
        out.count("Maximum request concurrency:", Some(cap));
    }
    if let Some(rate) = result.get("request_rate").filter(|v| v.is_number()) {
        out.number("Request rate configured (RPS):", Some(rate));
    }
    out.number("Benchmark duration (s):", result.get("duration"));
    out.count("Total input tokens:", result.get("total_input_tokens"));
    out.count("Total generated tokens:", result.get("total_output_tokens"));
    out.number(
        "Request throughput (req/s):",
        result.get("request_throughput"),
    );
    if let Some(goodput) = result.get("request_goodput").filter(|v| !v.is_null()) {
        out.number("Request goodput (req/s):", Some(goodput));
    }
    for (label, key) in [
        ("Output token throughput (tok/s):", "output_throughput"),
        (
            "Peak output token throughput (tok/s):",
            "max_output_tokens_per_s",
        ),
        ("Peak concurrent requests:", "max_concurrent_requests"),
        ("Total token throughput (tok/s):", "total_token_throughput"),
    ] {
        out.number(label, result.get(key));
    }
    for (header, name, key) in [
        ("Time to First Token", "TTFT", "ttft"),
        ("Time per Output Token (excl. 1st token)", "TPOT", "tpot"),
        ("Inter-token Latency", "ITL", "itl"),
        ("End-to-end Latency", "E2EL", "e2el"),
    ] {
        // A file may have been saved with fewer metrics.
        if result.contains_key(&format!("mean_{key}_ms")) {
            out.distribution(result, header, name, key);
        }
    }
    out.spec_decode(result);
    out.title("", '=');
    out.text
}

#[derive(Default)]
struct Block {
    text: String,
}

impl Block {
    fn title(&mut self, title: &str, fill: char) {
        let missing = 50_usize.saturating_sub(title.chars().count());
        let left = missing / 2;
        let side = |n: usize| std::iter::repeat_n(fill, n);
        self.text.extend(side(left));
        self.text.push_str(title);
        self.text.extend(side(missing - left));
        self.text.push('\n');
    }

    fn line(&mut self, label: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{label:<40} {value:<10}");
    }

    fn count(&mut self, label: &str, value: Option<&Value>) {
        match value.filter(|v| v.is_number()) {
            Some(value) => self.line(label, &value.to_string()),
            None => self.line(label, "n/a"),
        }
    }

    fn number(&mut self, label: &str, value: Option<&Value>) {
        match value.and_then(Value::as_f64) {
            Some(value) => self.line(label, &format!("{value:.2}")),
            None => self.line(label, "n/a"),
        }
    }

    fn distribution(&mut self, result: &Map<String, Value>, header: &str, name: &str, key: &str) {
        self.title(header, '-');
        self.number(
            &format!("Mean {name} (ms):"),
            result.get(&format!("mean_{key}_ms")),
        );
        self.number(
            &format!("Median {name} (ms):"),
            result.get(&format!("median_{key}_ms")),
        );
        let suffix = format!("_{key}_ms");
        for (found, value) in result {
            // p99_ttft_ms, p99.9_ttft_ms
            let percent = found
                .strip_prefix('p')
                .and_then(|k| k.strip_suffix(&suffix));
            if let Some(percent) = percent.filter(|p| p.parse::<f64>().is_ok()) {
                self.number(&format!("P{percent} {name} (ms):"), Some(value));
            }
        }
    }

    fn spec_decode(&mut self, result: &Map<String, Value>) {
        let get = |key: &str| result.get(&format!("spec_decode_{key}"));
        if get("acceptance_rate").is_none() {
            return;
        }
        self.title("Speculative Decoding", '-');
        self.number("Acceptance rate (%):", get("acceptance_rate"));
        self.number("Acceptance length:", get("acceptance_length"));
        self.count("Drafts:", get("num_drafts"));
        self.count("Draft tokens:", get("draft_tokens"));
        self.count("Accepted tokens:", get("accepted_tokens"));
        let positions = get("per_position_acceptance_rates").and_then(Value::as_array);
        if let Some(positions) = positions.filter(|p| !p.is_empty()) {
            self.text.push_str("Per-position acceptance (%):\n");
            for (i, rate) in positions.iter().enumerate() {
                let percent = rate.as_f64().map(|r| Value::from(r * 100.0));
                self.number(&format!("  Position {i}:"), percent.as_ref());
            }
        }
    }
}
