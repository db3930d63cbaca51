//! Whether the client, not the server, set the pace.

use super::{Case, Findings};

/// Above this share of token events that shared a read, gaps are those of the reads, not of the server.
const COALESCED: f64 = 0.05;

pub(super) fn check(case: &Case<'_>, found: &mut Findings) {
    coalesced(case, found);
    let Some(client) = case.client else {
        found.note(
            "client_unknown",
            "the client's own lag and CPU were not recorded",
        );
        return;
    };
    let limits = case.limits;
    let cpu = client.loop_cpu_pct;
    match client.timer_lag_p99_ms {
        Some(lag) if lag > limits.max_timer_lag_p99_ms => {
            let message = format!(
                "the client was late: timer lag p99 {lag:.1} ms, above {} ms",
                limits.max_timer_lag_p99_ms
            );
            if lag > limits.max_invalid_timer_lag_p99_ms {
                found.invalid("client_limited", message);
            } else {
                found.flag("client_limited", message);
            }
        }
        Some(_) => {}
        None => found.note("client_lag_unknown", "the client's timer lag is not known"),
    }
    let message = format!("the busiest receive thread used {cpu:.0} % of its core");
    if cpu > limits.max_invalid_loop_cpu_pct {
        found.invalid("client_limited", message);
    } else if cpu > limits.max_loop_cpu_pct {
        found.flag("client_limited", message);
    } else if cpu > limits.note_loop_cpu_pct {
        found.note("client_cpu", message);
    }
}

fn coalesced(case: &Case<'_>, found: &mut Findings) {
    let by_client = case.client.and_then(|c| c.coalesced_share);
    let by_reads = case.summary.tokens.coalesced_read_share.as_ref().ok();
    if let Some(share) = by_client.or(by_reads.copied())
        && share > COALESCED
    {
        found.note(
            "coalesced",
            format!(
                "{:.1} % of the token events shared a read with another one: their gap is that of the read",
                share * 100.0
            ),
        );
    }
}
