//! Mean, median and p95 of times.

use serde::Serialize;

/// Fewest values that must lie above a percentile for it to be given: as in `docs/metrics.md`.
const TAIL: f64 = 5.0;

/// Times of several steps, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stats {
    /// Arithmetic mean.
    #[serde(rename = "mean_ns")]
    pub(crate) mean: f64,
    /// Median (type 7).
    #[serde(rename = "median_ns")]
    pub(crate) median: f64,
    /// 95th percentile (type 7); `null` where fewer than five values lie above it.
    #[serde(rename = "p95_ns")]
    pub(crate) p95: Option<f64>,
    /// Largest value.
    #[serde(rename = "max_ns")]
    pub(crate) max: u64,
    /// Sum.
    #[serde(rename = "sum_ns")]
    pub(crate) sum: u64,
}

impl Stats {
    /// Of values in any order; all zero without one.
    pub(crate) fn of(values: impl IntoIterator<Item = u64>) -> Stats {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        let Some(&max) = values.last() else {
            return Stats::default();
        };
        let sum = values.iter().sum::<u64>();
        let above = values.len() as f64 * 0.05;
        Stats {
            mean: sum as f64 / values.len() as f64,
            median: quantile(&values, 0.5),
            p95: (above >= TAIL - 1e-9).then(|| quantile(&values, 0.95)),
            max,
            sum,
        }
    }

    /// The 95th percentile in milliseconds, or the maximum marked as such.
    pub(crate) fn p95_ms(&self, digits: usize) -> String {
        match self.p95 {
            Some(p95) => ms(p95, digits),
            None => format!("{}^", ms(self.max as f64, digits)),
        }
    }
}

/// Linear interpolation between the two nearest of the sorted values.
fn quantile(sorted: &[u64], p: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * p;
    let (below, part) = (at.floor() as usize, at.fract());
    let low = sorted[below] as f64;
    let high = sorted[(below + 1).min(sorted.len() - 1)] as f64;
    low + part * (high - low)
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: f64, digits: usize) -> String {
    format!("{:.digits$}", ns / 1e6)
}

/// Nanoseconds as microseconds.
pub(crate) fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

/// A share in percent; `n/a` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "n/a".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_five_values_above_it() {
        let few = Stats::of((1..=99).rev());
        assert_eq!((few.median, few.p95, few.max), (50.0, None, 99));
        assert_eq!(few.p95_ms(6), "0.000099^");
        let enough = Stats::of(1..=100);
        assert_eq!((enough.mean, enough.p95), (50.5, Some(95.05)));
        assert_eq!(Stats::of([]), Stats::default());
        assert_eq!(Stats::of([7]).median, 7.0);
    }
}
