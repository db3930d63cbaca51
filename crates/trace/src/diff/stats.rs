//! Levels of a part in each capture, and the change between them.

use serde::Serialize;

/// Half-width of a 95 % interval in standard errors.
const Z95: f64 = 1.96;

/// The level of a part over the steps of one capture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Mean nanoseconds a step and GPU.
    pub mean_ns: f64,
    /// Median nanoseconds a step and GPU.
    pub median_ns: f64,
}

/// From the first capture to the second; positive is slower.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Difference of the means, nanoseconds.
    pub mean_ns: f64,
    /// The same in percent of the first; `None` where that is zero.
    pub mean_percent: Option<f64>,
    /// Difference of the medians, nanoseconds.
    pub median_ns: f64,
    /// The same in percent of the first; `None` where that is zero.
    pub median_percent: Option<f64>,
    /// 95 % interval of the difference of the means by the variation from step to step (Welch); ranks of one step are
    /// not independent and count as one. `None` with fewer than two steps on a side.
    pub interval_ns: Option<(f64, f64)>,
}

impl Change {
    pub(super) fn from(a: &Samples, b: &Samples) -> Change {
        let (from, to) = (a.level(), b.level());
        let percent = |from: f64, to: f64| (from > 0.0).then(|| (to / from - 1.0) * 100.0);
        let mean_ns = to.mean_ns - from.mean_ns;
        let error = a.squared_error().zip(b.squared_error());
        Change {
            mean_ns,
            mean_percent: percent(from.mean_ns, to.mean_ns),
            median_ns: to.median_ns - from.median_ns,
            median_percent: percent(from.median_ns, to.median_ns),
            interval_ns: error.map(|(a, b)| {
                let half = Z95 * (a + b).sqrt();
                (mean_ns - half, mean_ns + half)
            }),
        }
    }

    /// Whether the interval leaves zero out; `None` without an interval.
    pub fn is_shown(&self) -> Option<bool> {
        let (low, high) = self.interval_ns?;
        Some(low > 0.0 || high < 0.0)
    }
}

/// Durations of one part, sorted.
pub(super) struct Samples {
    sorted: Vec<u64>,
    /// Independent ones among them.
    steps: usize,
}

impl Samples {
    pub(super) fn new(mut values: Vec<u64>, steps: usize) -> Self {
        values.sort_unstable();
        Samples {
            sorted: values,
            steps,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.sorted.last().is_none_or(|&last| last == 0)
    }

    fn mean(&self) -> f64 {
        // Exact: no sum of durations of a capture reaches 2^64 ns.
        let sum: u64 = self.sorted.iter().sum();
        sum as f64 / self.sorted.len().max(1) as f64
    }

    pub(super) fn level(&self) -> Level {
        let n = self.sorted.len();
        let at = |i: usize| self.sorted.get(i).copied().unwrap_or(0) as f64;
        Level {
            mean_ns: self.mean(),
            median_ns: (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0,
        }
    }

    /// Squared standard error of the mean.
    fn squared_error(&self) -> Option<f64> {
        if self.steps < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
        let variance = squares / (self.sorted.len() - 1) as f64;
        Some(variance / self.steps as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[u64]) -> Samples {
        Samples::new(values.to_vec(), values.len())
    }

    #[test]
    fn worked_figures() {
        let change = Change::from(&samples(&[10, 14, 12]), &samples(&[20, 16, 24, 20]));
        assert_eq!(change.mean_ns, 8.0);
        assert!((change.mean_percent.unwrap() - 66.667).abs() < 0.001);
        assert_eq!(
            (change.median_ns, change.median_percent.unwrap().round()),
            (8.0, 67.0)
        );
        // Variances 4 and 32/3: standard error sqrt(4/3 + 8/3) = 2.
        let (low, high) = change.interval_ns.unwrap();
        assert!((low - 4.08).abs() < 1e-9 && (high - 11.92).abs() < 1e-9);
        assert_eq!(change.is_shown(), Some(true));
    }

    #[test]
    fn noise_is_no_difference_and_one_step_has_no_interval() {
        let noisy = Change::from(&samples(&[10, 30]), &samples(&[12, 30]));
        assert_eq!(noisy.is_shown(), Some(false));
        let one = Change::from(&samples(&[10]), &samples(&[0, 0]));
        assert_eq!((one.interval_ns, one.is_shown()), (None, None));
        assert_eq!(one.mean_percent, Some(-100.0));
        assert_eq!(
            Change::from(&samples(&[0]), &samples(&[5])).mean_percent,
            None
        );
    }

    #[test]
    fn ranks_of_a_step_do_not_narrow_the_interval() {
        let width = |steps| {
            let side = |shift: u64| {
                Samples::new(vec![10 + shift, 14 + shift, 12 + shift, 12 + shift], steps)
            };
            let (low, high) = Change::from(&side(0), &side(1)).interval_ns.unwrap();
            high - low
        };
        assert!(width(2) > width(4));
    }
}
