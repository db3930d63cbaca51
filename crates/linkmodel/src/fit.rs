//! Time of a message as `alpha + bytes × beta`: what every message costs, and what every byte costs.

use serde::{Deserialize, Serialize};

/// Why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// One size (or none) cannot tell latency from bandwidth.
    #[error(
        "{sizes} distinct message size(s): at least two are needed to tell latency from bandwidth"
    )]
    OneSize {
        /// Distinct sizes with a positive weight.
        sizes: usize,
    },
    /// A time or weight that is not a finite number, or a negative weight.
    #[error("point {index}: {value} is not a usable number")]
    BadNumber {
        /// Position of the point.
        index: usize,
        /// The number.
        value: f64,
    },
    /// Larger messages were not slower.
    #[error(
        "larger messages were not slower (slope {ns_per_byte} ns a byte): the points hold no bandwidth"
    )]
    NoSlope {
        /// The slope.
        ns_per_byte: f64,
    },
}

/// A line through message sizes and times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlphaBeta {
    /// Time of an empty message, nanoseconds. Negative when the points curve.
    pub alpha_ns: f64,
    /// Time of one more byte, nanoseconds.
    pub beta_ns_per_byte: f64,
}

impl AlphaBeta {
    /// Least squares over `(bytes, nanoseconds)`.
    ///
    /// # Errors
    /// Fewer than two sizes, numbers that are not finite, or times that do not grow with the size.
    pub fn fit(points: &[(u64, f64)]) -> Result<Self, FitError> {
        let weighted: Vec<_> = points.iter().map(|&(bytes, ns)| (bytes, ns, 1.0)).collect();
        Self::fit_weighted(&weighted)
    }

    /// Least squares over `(bytes, nanoseconds, weight)`. A weight of `1/ns²` makes all sizes count by their relative
    /// error, so that the largest message does not decide alone.
    ///
    /// # Errors
    /// As [`Self::fit`]; also a negative weight.
    pub fn fit_weighted(points: &[(u64, f64, f64)]) -> Result<Self, FitError> {
        for (index, &(_, ns, weight)) in points.iter().enumerate() {
            let bad = [ns, weight].into_iter().find(|v| !v.is_finite());
            if let Some(value) = bad.or((weight < 0.0).then_some(weight)) {
                return Err(FitError::BadNumber { index, value });
            }
        }
        let used: Vec<_> = points.iter().filter(|p| p.2 > 0.0).collect();
        let mut sizes: Vec<u64> = used.iter().map(|p| p.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 2 {
            return Err(FitError::OneSize { sizes: sizes.len() });
        }
        let total: f64 = used.iter().map(|p| p.2).sum();
        let mean = |value: fn(&(u64, f64, f64)) -> f64| {
            used.iter().map(|p| p.2 * value(p)).sum::<f64>() / total
        };
        let (mean_bytes, mean_ns) = (mean(|p| p.0 as f64), mean(|p| p.1));
        // Centred sums: sizes reach from 8 B to 1 GiB, whose squares do not fit beside each other.
        let (mut covariance, mut variance) = (0.0, 0.0);
        for &&(bytes, ns, weight) in &used {
            let d = bytes as f64 - mean_bytes;
            covariance += weight * d * (ns - mean_ns);
            variance += weight * d * d;
        }
        let beta = covariance / variance;
        if beta.is_nan() || beta <= 0.0 {
            return Err(FitError::NoSlope { ns_per_byte: beta });
        }
        Ok(AlphaBeta {
            alpha_ns: mean_ns - beta * mean_bytes,
            beta_ns_per_byte: beta,
        })
    }

    /// Time of a message, nanoseconds.
    pub fn time_ns(&self, bytes: u64) -> f64 {
        self.alpha_ns + self.beta_ns_per_byte * bytes as f64
    }

    /// Bandwidth of an endless message, bytes a second; `None` when a byte costs nothing.
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.beta_ns_per_byte > 0.0).then(|| 1e9 / self.beta_ns_per_byte)
    }

    /// The same link with `factor` times the bandwidth and the same latency.
    pub fn faster(&self, factor: f64) -> Self {
        AlphaBeta {
            beta_ns_per_byte: self.beta_ns_per_byte / factor,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_study_s_two_all_reduces() {
        let fit = AlphaBeta::fit(&[(80 << 10, 32_000.0), (320 << 10, 74_000.0)]).unwrap();
        assert!((fit.alpha_ns / 1e3 - 18.0).abs() < 0.01, "{fit:?}");
        let rate = fit.bytes_per_second().unwrap();
        assert!((rate / 1e9 - 5.9).abs() < 0.06, "{rate}");
        // 138 of them at twice the bandwidth save 3.9 ms of an 87 ms step.
        let saved = 138.0 * (fit.time_ns(320 << 10) - fit.faster(2.0).time_ns(320 << 10));
        assert!((saved / 1e6 - 3.9).abs() < 0.05, "{saved}");
        assert!((87.0 / (87.0 - saved / 1e6) - 1.047).abs() < 0.001);
    }

    #[test]
    fn points_without_an_answer_are_refused() {
        assert_eq!(
            AlphaBeta::fit(&[(8, 1.0), (8, 2.0)]),
            Err(FitError::OneSize { sizes: 1 })
        );
        assert_eq!(AlphaBeta::fit(&[]), Err(FitError::OneSize { sizes: 0 }));
        assert!(matches!(
            AlphaBeta::fit(&[(8, 2.0), (16, 1.0)]),
            Err(FitError::NoSlope { .. })
        ));
        assert!(matches!(
            AlphaBeta::fit(&[(8, f64::NAN), (16, 1.0)]),
            Err(FitError::BadNumber { index: 0, .. })
        ));
        assert_eq!(
            AlphaBeta::fit_weighted(&[(8, 1.0, 1.0), (16, 2.0, -1.0)]),
            Err(FitError::BadNumber {
                index: 1,
                value: -1.0
            })
        );
        // A weight of zero takes a point away.
        assert_eq!(
            AlphaBeta::fit_weighted(&[(8, 1.0, 1.0), (16, 2.0, 0.0)]),
            Err(FitError::OneSize { sizes: 1 })
        );
    }

    proptest! {
        #[test]
        fn points_on_a_line_give_the_line(
            alpha in 0.0..1e6f64, beta in 1e-4..10.0f64,
            points in proptest::collection::btree_map(0u64..1 << 30, 0.01..10.0f64, 2..12),
        ) {
            let points: Vec<_> = points
                .into_iter()
                .map(|(bytes, weight)| (bytes, alpha + beta * bytes as f64, weight))
                .collect();
            let fit = AlphaBeta::fit_weighted(&points).unwrap();
            for &(bytes, ns, _) in &points {
                prop_assert!((fit.time_ns(bytes) - ns).abs() <= 1e-6 * (1.0 + ns.abs()) + 1e-3);
            }
        }
    }
}
