//! What the server's own histograms say.

use linktax_records::{HistogramDelta, ServerDelta};

/// Means of the server's own latencies over a cell, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerMeans {
    /// Time to first token.
    pub ttft_ms: Option<f64>,
    /// Inter-token latency: the gap between engine steps of a request, as vLLM counts it.
    pub itl_ms: Option<f64>,
    /// Time in the queue.
    pub queue_ms: Option<f64>,
}

/// The means of the server's own histograms; `None` where one is unknown or empty.
pub fn server_means(server: &ServerDelta) -> ServerMeans {
    let mean = |histogram: &Option<HistogramDelta>| {
        let h = histogram.as_ref()?;
        (h.count > 0.0).then(|| h.sum_s / h.count * 1e3)
    };
    ServerMeans {
        ttft_ms: mean(&server.ttft),
        itl_ms: mean(&server.itl),
        queue_ms: mean(&server.queue),
    }
}

/// The `q` quantile (0 to 1) of a Prometheus histogram in seconds, as `histogram_quantile` computes it:
/// linear interpolation within a bucket, the first one starting at 0.
///
/// `None` for an empty histogram, a `q` outside 0 to 1, or a quantile in the unbounded last bucket,
/// of which only a lower bound is known.
pub fn histogram_quantile(histogram: &HistogramDelta, q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let total = histogram.buckets.last()?.1;
    if total.is_nan() || total <= 0.0 {
        return None;
    }
    let rank = q * total;
    let (mut from, mut below) = (0.0, 0.0);
    for &(bound, upto) in &histogram.buckets {
        // An empty bucket can hold no rank, not even 0.
        if upto >= rank && upto > below {
            return Some(from + (bound? - from) * (rank - below) / (upto - below));
        }
        from = bound?;
        below = upto;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(Option<f64>, f64)]) -> HistogramDelta {
        HistogramDelta {
            count: buckets.last().map_or(0.0, |b| b.1),
            sum_s: 3.0,
            buckets: buckets.to_vec(),
        }
    }

    #[test]
    fn quantiles_interpolate_within_a_bucket() {
        let h = histogram(&[(Some(0.1), 10.0), (Some(0.2), 30.0), (None, 40.0)]);
        assert_eq!(histogram_quantile(&h, 0.125), Some(0.05));
        assert_eq!(histogram_quantile(&h, 0.5), Some(0.1 + 0.1 * 0.5));
        assert_eq!(histogram_quantile(&h, 0.9), None, "falls into +Inf");
        assert_eq!(histogram_quantile(&h, 1.5), None);
        assert_eq!(histogram_quantile(&h, f64::NAN), None);
    }

    #[test]
    fn empty_histograms_and_empty_buckets_have_no_quantile_of_their_own() {
        assert_eq!(histogram_quantile(&histogram(&[]), 0.5), None);
        assert_eq!(
            histogram_quantile(&histogram(&[(Some(1.0), 0.0), (None, 0.0)]), 0.5),
            None
        );
        let h = histogram(&[(Some(1.0), 0.0), (Some(2.0), 4.0), (None, 4.0)]);
        assert_eq!(histogram_quantile(&h, 0.0), Some(1.0));
    }

    #[test]
    fn means_are_in_milliseconds() {
        let server = ServerDelta {
            ttft: Some(histogram(&[(Some(1.0), 6.0), (None, 6.0)])),
            itl: Some(HistogramDelta::default()),
            ..ServerDelta::default()
        };
        let means = server_means(&server);
        assert_eq!(
            (means.ttft_ms, means.itl_ms, means.queue_ms),
            (Some(500.0), None, None)
        );
    }
}
