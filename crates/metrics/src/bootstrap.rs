//! 95 % intervals: percentile bootstrap over requests.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::decode::usual_rate;
use crate::distribution::quantile_of;
use crate::figure::{Figure, Missing, millis, missing};
use crate::latency::tpot_ms;
use crate::request::Request;

/// Fewer requests than this give no interval.
const FEWEST: usize = 8;

/// A 95 % interval of one number.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The key of the number it belongs to, such as `mean_ttft_ms`.
    pub key: &'static str,
    /// Low and high end.
    pub bounds: Figure<(f64, f64)>,
}

/// How a number follows from resampled requests.
enum Statistic {
    Mean,
    Median,
    /// Sum of the first / sum of the second.
    Ratio,
}

/// A number, and what each request contributes to it: `(value, weight)`.
struct Estimator {
    key: &'static str,
    statistic: Statistic,
    samples: Vec<Option<(f64, f64)>>,
}

impl Estimator {
    fn new(
        key: &'static str,
        statistic: Statistic,
        requests: &[&Request],
        sample: impl Fn(&Request) -> Option<(f64, f64)>,
    ) -> Self {
        Estimator {
            key,
            statistic,
            samples: requests.iter().map(|r| sample(r)).collect(),
        }
    }

    /// The number under these multiplicities of the requests; `by_value` lists the requests by value.
    fn estimate(&self, times: &[u32], by_value: &[usize]) -> Option<f64> {
        match self.statistic {
            Statistic::Median => self.median(times, by_value),
            Statistic::Mean | Statistic::Ratio => {
                let (mut top, mut bottom) = (0.0, 0.0);
                for (sample, &n) in self.samples.iter().zip(times) {
                    if let Some((value, weight)) = sample {
                        top += value * f64::from(n);
                        bottom += weight * f64::from(n);
                    }
                }
                (bottom > 0.0).then(|| top / bottom)
            }
        }
    }

    fn median(&self, times: &[u32], by_value: &[usize]) -> Option<f64> {
        let drawn = |i: usize| u64::from(times.get(i).copied().unwrap_or(0));
        let total: u64 = by_value.iter().map(|&i| drawn(i)).sum();
        let at = |rank: u64| {
            let mut seen = 0;
            by_value.iter().find_map(|&i| {
                seen += drawn(i);
                (rank < seen).then(|| self.value(i))
            })
        };
        let low = at(total.checked_sub(1)? / 2)?;
        let high = at(total / 2)?;
        Some((low + high) / 2.0)
    }

    fn value(&self, i: usize) -> f64 {
        self.samples
            .get(i)
            .and_then(Option::as_ref)
            .map_or(f64::NAN, |s| s.0)
    }

    fn by_value(&self) -> Vec<usize> {
        if !matches!(self.statistic, Statistic::Median) {
            return Vec::new();
        }
        let mut order: Vec<usize> = (0..self.samples.len())
            .filter(|&i| self.samples.get(i).is_some_and(Option::is_some))
            .collect();
        order.sort_by(|&a, &b| self.value(a).total_cmp(&self.value(b)));
        order
    }

    fn known(&self) -> usize {
        self.samples.iter().flatten().count()
    }
}

fn estimators(done: &[&Request]) -> Vec<Estimator> {
    let ttft = |r: &Request| Some((millis(r.ttft_ns()?), 1.0));
    vec![
        Estimator::new("mean_ttft_ms", Statistic::Mean, done, ttft),
        Estimator::new("median_ttft_ms", Statistic::Median, done, ttft),
        Estimator::new("mean_tpot_ms", Statistic::Mean, done, |r| {
            Some((tpot_ms(r)?, 1.0))
        }),
        Estimator::new("mean_e2el_ms", Statistic::Mean, done, |r| {
            Some((millis(r.e2el_ns()?), 1.0))
        }),
        Estimator::new("decode_tok_s", Statistic::Ratio, done, |r| {
            let ns = r.gaps.kept_ns();
            (ns > 0).then(|| (r.gaps.kept_tokens() as f64 * 1e9, ns as f64))
        }),
        Estimator::new("usual_decode_tok_s", Statistic::Mean, done, |r| {
            Some((usual_rate(r)?, 1.0))
        }),
    ]
}

/// The intervals of the headline numbers. The same seed and requests give the same intervals.
pub(crate) fn intervals(requests: &[Request], resamples: u32, seed: u64) -> Vec<Interval> {
    let done: Vec<&Request> = requests.iter().filter(|r| r.completed()).collect();
    let estimators = estimators(&done);
    let orders: Vec<Vec<usize>> = estimators.iter().map(Estimator::by_value).collect();
    let mut draws: Vec<Vec<f64>> = vec![Vec::new(); estimators.len()];
    if done.len() >= FEWEST {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut times = vec![0_u32; done.len()];
        for _ in 0..resamples {
            times.fill(0);
            for _ in 0..done.len() {
                if let Some(n) = times.get_mut(rng.random_range(0..done.len())) {
                    *n += 1;
                }
            }
            for ((estimator, order), draws) in estimators.iter().zip(&orders).zip(&mut draws) {
                draws.extend(estimator.estimate(&times, order));
            }
        }
    }
    estimators
        .iter()
        .zip(draws)
        .map(|(estimator, draws)| Interval {
            key: estimator.key,
            bounds: bounds(estimator.known(), resamples, draws),
        })
        .collect()
}

fn bounds(known: usize, resamples: u32, mut draws: Vec<f64>) -> Figure<(f64, f64)> {
    if known < FEWEST {
        return missing(format!(
            "an interval needs {FEWEST} requests that have this number, there are {known}"
        ));
    }
    if resamples == 0 {
        return missing("no resamples were asked for");
    }
    let low = quantile_of(&mut draws, 2.5);
    let high = quantile_of(&mut draws, 97.5);
    low.zip(high)
        .ok_or_else(|| Missing::because("no resample had this number"))
}
