use crate::figure::{Figure, missing};

/// How percentiles are computed, for the manifest of a run.
pub const PERCENTILE_METHOD: &str = "linear interpolation between order statistics (type 7)";

/// Fewest samples that must lie above a percentile for it to be given.
const TAIL_SAMPLES: f64 = 5.0;

/// One family of latencies (`{m}` in `docs/metrics.md`), in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median; unlike a percentile it is given for any number of samples.
    pub median: f64,
    /// Standard deviation of the population (divisor N).
    pub std: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// `(percentile, value)`; the value is missing where fewer than five samples lie above it.
    pub percentiles: Vec<(f64, Figure)>,
}

impl Distribution {
    /// The value at this percentile, if it was asked for and can be given.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        self.percentiles
            .iter()
            .find(|(p, _)| *p == percent)
            .and_then(|(_, value)| value.as_ref().ok().copied())
    }

    /// The distribution of samples in any order; `None` without one.
    pub(crate) fn of(mut samples: Vec<f64>, percentiles: &[f64]) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        Self::of_sorted(|| samples.iter().map(|&ms| (ms, 1)), percentiles)
    }

    /// The distribution of ascending `(value, weight)` pairs, each standing for `weight` equal samples.
    ///
    /// `sorted` is called several times, so that fifteen million gaps need no second copy.
    pub(crate) fn of_sorted<I>(sorted: impl Fn() -> I, percentiles: &[f64]) -> Option<Self>
    where
        I: Iterator<Item = (f64, u64)>,
    {
        let (mut count, mut sum, mut min, mut max) = (0_u64, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for (value, weight) in sorted().filter(|&(_, weight)| weight > 0) {
            count += weight;
            sum += value * weight as f64;
            min = f64::min(min, value);
            max = f64::max(max, value);
        }
        if count == 0 {
            return None;
        }
        let mean = sum / count as f64;
        let squares: f64 = sorted()
            .map(|(value, weight)| (value - mean).powi(2) * weight as f64)
            .sum();

        let mut wanted = vec![50.0];
        wanted.extend(percentiles);
        let values = quantiles(sorted(), count, &wanted);
        Some(Distribution {
            count,
            mean,
            median: values.first().copied().unwrap_or(mean),
            std: (squares / count as f64).sqrt(),
            min,
            max,
            percentiles: percentiles
                .iter()
                .copied()
                .zip(values.into_iter().skip(1))
                .map(|(p, value)| (p, tail_rule(count, p, value)))
                .collect(),
        })
    }
}

/// Samples that a percentile needs.
pub(crate) fn needed_samples(percent: f64) -> u64 {
    (TAIL_SAMPLES * 100.0 / (100.0 - percent) - 1e-6).ceil() as u64
}

fn tail_rule(count: u64, percent: f64, value: f64) -> Figure {
    let needed = needed_samples(percent);
    if count < needed {
        missing(format!(
            "{count} samples are too few for p{percent} (it needs {needed}); see the maximum"
        ))
    } else {
        Ok(value)
    }
}

/// Type 7 quantiles of an ascending weighted sequence, at the given percentiles (any order).
fn quantiles(sorted: impl Iterator<Item = (f64, u64)>, count: u64, percents: &[f64]) -> Vec<f64> {
    let position = |p: f64| (count - 1) as f64 * (p / 100.0);
    let mut ranks: Vec<u64> = percents
        .iter()
        .flat_map(|&p| {
            let below = position(p).floor() as u64;
            [below, (below + 1).min(count - 1)]
        })
        .collect();
    ranks.sort_unstable();
    ranks.dedup();

    let mut values = Vec::with_capacity(ranks.len());
    let mut seen = 0_u64;
    for (value, weight) in sorted {
        seen += weight;
        while ranks.get(values.len()).is_some_and(|&rank| rank < seen) {
            values.push(value);
        }
    }
    let at = |rank: u64| {
        ranks
            .binary_search(&rank)
            .ok()
            .and_then(|i| values.get(i).copied())
            .unwrap_or(f64::NAN)
    };
    percents
        .iter()
        .map(|&p| {
            let h = position(p);
            let below = h.floor();
            let (low, high) = (at(below as u64), at((below as u64 + 1).min(count - 1)));
            // The limits keep rounding from stepping over a neighbour, so percentiles stay monotone.
            (low + (h - below) * (high - low)).max(low).min(high)
        })
        .collect()
}

/// The percentile of a few plain samples; used for the bootstrap.
pub(crate) fn quantile_of(samples: &mut [f64], percent: f64) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    samples.sort_unstable_by(f64::total_cmp);
    let pairs = samples.iter().map(|&value| (value, 1));
    quantiles(pairs, samples.len() as u64, &[percent])
        .first()
        .copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_interpolate_linearly_as_numpy_does() {
        // numpy.percentile([10, 20, 30, 40, 50], [50, 90]) == [30, 46]
        let mut samples = [50.0, 10.0, 40.0, 20.0, 30.0];
        assert_eq!(quantile_of(&mut samples, 50.0), Some(30.0));
        assert_eq!(quantile_of(&mut samples, 90.0), Some(46.0));
        let d = Distribution::of(samples.to_vec(), &[]).unwrap();
        assert_eq!((d.mean, d.median, d.min, d.max), (30.0, 30.0, 10.0, 50.0));
        // numpy.std, ddof = 0
        assert!((d.std - 200_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_percentile_needs_five_samples_above_it() {
        for (percent, needed) in [
            (50.0, 10),
            (90.0, 50),
            (95.0, 100),
            (99.0, 500),
            (99.9, 5000),
        ] {
            assert_eq!(needed_samples(percent), needed);
            let d = |n| Distribution::of(vec![1.0; n as usize], &[percent]).unwrap();
            assert_eq!(d(needed).percentile(percent), Some(1.0));
            assert_eq!(d(needed - 1).percentile(percent), None);
        }
    }

    #[test]
    fn nothing_measured_is_no_distribution() {
        assert_eq!(Distribution::of(Vec::new(), &[50.0]), None);
        assert_eq!(
            Distribution::of_sorted(|| [(1.0, 0)].into_iter(), &[]),
            None
        );
    }

    proptest! {
        #[test]
        fn percentiles_lie_between_the_extremes_and_are_monotone(
            samples in prop::collection::vec(0.0..1e7_f64, 1..600),
        ) {
            let asked = [1.0, 25.0, 50.0, 75.0, 90.0, 99.0];
            let d = Distribution::of(samples, &asked).unwrap();
            let values: Vec<f64> = asked.iter().filter_map(|&p| d.percentile(p)).collect();
            prop_assert!(values.is_sorted());
            prop_assert!(values.iter().all(|v| (d.min..=d.max).contains(v)));
            prop_assert!((d.min..=d.max).contains(&d.median));
        }

        #[test]
        fn a_weight_is_that_many_samples(
            pairs in prop::collection::vec((0.0..1e4_f64, 0_u64..6), 1..60),
        ) {
            let mut pairs = pairs;
            pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let plain = pairs.iter().flat_map(|&(v, w)| (0..w).map(move |_| v)).collect();
            let weighted = Distribution::of_sorted(|| pairs.iter().copied(), &[50.0, 90.0]);
            let plain = Distribution::of(plain, &[50.0, 90.0]);
            prop_assert_eq!(weighted.is_some(), plain.is_some());
            if let (Some(w), Some(p)) = (weighted, plain) {
                prop_assert_eq!((w.count, w.median, w.min, w.max), (p.count, p.median, p.min, p.max));
                prop_assert_eq!(w.percentile(90.0), p.percentile(90.0));
                prop_assert!((w.mean - p.mean).abs() <= 1e-9 * p.mean.max(1.0));
            }
        }
    }
}
