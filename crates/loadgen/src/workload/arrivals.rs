//! When the requests of an open loop are due: absolute times, so that the cost of one send never
//! delays the next.
//!
//! ```
//! use linktax_loadgen::workload::arrivals::schedule;
//! use linktax_records::Nanos;
//!
//! let due: Vec<Nanos> = schedule(200.0, None, Some(1000), 0)?.collect();
//! assert_eq!(due[0], Nanos::ZERO);
//! assert_eq!(due[999], Nanos::from_millis(4995));
//! # Ok::<(), linktax_loadgen::workload::WorkloadError>(())
//! ```

use linktax_records::Nanos;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};

use super::WorkloadError;

/// The due times of a cell at `per_second` requests a second, from the start of its measured phase.
///
/// The first request is due at zero. `burstiness` is the gamma shape of the gaps: `None` (or
/// infinity) is constant spacing, 1 is Poisson, more is smoother, less is burstier. With `requests`
/// known, the gaps, the one after the last request included, are scaled to sum to
/// `requests / per_second`, as `vllm bench serve` does; without, the iterator never ends.
/// The same arguments give the same times, so that the arms of a comparison can share them.
///
/// # Errors
///
/// A rate or burstiness that is not above zero.
pub fn schedule(
    per_second: f64,
    burstiness: Option<f64>,
    requests: Option<u64>,
    seed: u64,
) -> Result<Schedule, WorkloadError> {
    if !(per_second.is_finite() && per_second > 0.0) {
        return Err(WorkloadError::Setting {
            field: "request_rate",
            value: per_second.to_string(),
            expected: "requests a second, above 0".to_owned(),
        });
    }
    let gaps = match burstiness {
        None => None,
        Some(shape) if shape == f64::INFINITY => None,
        Some(shape) => Some(RandomGaps::new(per_second, shape, requests, seed)?),
    };
    Ok(Schedule {
        per_second,
        gaps,
        next: 0,
        end: requests,
    })
}

/// Due times of an open loop; made by [`schedule`].
#[derive(Clone, Debug)]
pub struct Schedule {
    per_second: f64,
    gaps: Option<RandomGaps>,
    next: u64,
    end: Option<u64>,
}

impl Iterator for Schedule {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        if self.end.is_some_and(|end| self.next >= end) {
            return None;
        }
        let due_s = match &mut self.gaps {
            // From the index, not by adding gaps: no rounding error piles up.
            None => self.next as f64 / self.per_second,
            Some(gaps) => gaps.due_s(),
        };
        self.next += 1;
        Some(Nanos::from_secs_f64(due_s))
    }
}

#[derive(Clone, Debug)]
struct RandomGaps {
    gamma: Gamma<f64>,
    rng: ChaCha8Rng,
    scale: f64,
    elapsed: f64,
}

impl RandomGaps {
    fn new(
        per_second: f64,
        shape: f64,
        requests: Option<u64>,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let gamma =
            Gamma::new(shape, 1.0 / (per_second * shape)).map_err(|_| WorkloadError::Setting {
                field: "burstiness",
                value: shape.to_string(),
                expected: "a gamma shape above 0 (1 is Poisson)".to_owned(),
            })?;
        let mut gaps = RandomGaps {
            gamma,
            rng: ChaCha8Rng::seed_from_u64(seed),
            scale: 1.0,
            elapsed: 0.0,
        };
        if let Some(requests) = requests {
            // Drawn twice (once for the sum) instead of kept: a long open loop costs no memory.
            let mut ahead = gaps.clone();
            let sum: f64 = (0..requests).map(|_| ahead.gap()).sum();
            let scale = requests as f64 / per_second / sum;
            // A tiny shape can draw nothing but zeros; such a burst cannot be stretched.
            if scale.is_finite() {
                gaps.scale = scale;
            }
        }
        Ok(gaps)
    }

    fn gap(&mut self) -> f64 {
        self.gamma.sample(&mut self.rng)
    }

    fn due_s(&mut self) -> f64 {
        let due = self.elapsed;
        self.elapsed += self.gap() * self.scale;
        due
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn due(rate: f64, burstiness: Option<f64>, requests: u64, seed: u64) -> Vec<Nanos> {
        schedule(rate, burstiness, Some(requests), seed)
            .unwrap()
            .collect()
    }

    #[test]
    fn fr_09_constant_spacing_has_absolute_deadlines() {
        let times = due(200.0, None, 1000, 0);
        assert_eq!(times.len(), 1000);
        assert_eq!(times[0], Nanos::ZERO);
        assert_eq!(times[1], Nanos::from_millis(5));
        assert_eq!(times[999], Nanos::from_millis(4995));
    }

    #[test]
    fn fr_09_rates_below_one_a_second_work() {
        let times = due(0.4, None, 5, 0);
        let expected: Vec<Nanos> = (0..5).map(|i| Nanos::from_millis(2500 * i)).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn an_infinite_burstiness_is_constant_spacing() {
        assert_eq!(due(3.0, Some(f64::INFINITY), 50, 1), due(3.0, None, 50, 2));
    }

    #[test]
    fn without_a_count_the_mean_rate_is_the_rate_asked_for() {
        let last = schedule(50.0, Some(1.0), None, 3)
            .unwrap()
            .nth(20_000)
            .unwrap();
        // The standard error of 20,000 exponential gaps is 0.7 %.
        assert!((last.as_secs_f64() - 400.0).abs() < 14.0, "{last}");
    }

    #[test]
    fn a_larger_shape_is_smoother() {
        let spread = |shape| {
            let times = due(100.0, Some(shape), 4000, 5);
            let gaps: Vec<f64> = times
                .windows(2)
                .map(|w| (w[1] - w[0]).as_secs_f64() * 100.0)
                .collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt()
        };
        // The coefficient of variation of a gamma is 1 / sqrt(shape).
        assert!((spread(1.0) - 1.0).abs() < 0.1);
        assert!((spread(4.0) - 0.5).abs() < 0.05);
        assert!((spread(0.25) - 2.0).abs() < 0.3);
    }

    #[test]
    fn nonsense_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(schedule(rate, None, None, 0).is_err(), "{rate}");
        }
        for shape in [0.0, -2.0, f64::NAN] {
            assert!(schedule(1.0, Some(shape), None, 0).is_err(), "{shape}");
        }
    }

    proptest! {
        #[test]
        fn times_never_go_backwards_and_keep_the_mean_rate(
            rate in 0.05f64..5000.0,
            shape in proptest::option::of(0.2f64..20.0),
            requests in 1u64..400,
            seed: u64,
        ) {
            let times = due(rate, shape, requests, seed);
            prop_assert_eq!(times.len() as u64, requests);
            prop_assert_eq!(times[0], Nanos::ZERO);
            prop_assert!(times.is_sorted());
            let end = requests as f64 / rate;
            prop_assert!(times[times.len() - 1].as_secs_f64() <= end * (1.0 + 1e-9) + 1e-9);
            prop_assert_eq!(&times, &due(rate, shape, requests, seed));
            // The gap after the last request closes the sum to exactly N / rate.
            if let Some(mut gaps) = schedule(rate, shape, Some(requests), seed).unwrap().gaps {
                for _ in 0..requests {
                    gaps.due_s();
                }
                prop_assert!((gaps.elapsed / end - 1.0).abs() < 1e-9);
            }
        }
    }
}
