use std::fmt;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use super::WorkloadError;

const EXPECTED: &str = "`fixed`, `uniform:R` or `normal:S`, with R and S above 0 and below 1";

/// Standard deviations at which a normal length is cut, so that a cell has a longest prompt.
const NORMAL_CUT: f64 = 4.0;

/// How the length of a request is drawn around the length its cell asks for.
///
/// Written as text: `fixed`, `uniform:0.5`, `normal:0.2`.
///
/// ```
/// use linktax_loadgen::workload::Lengths;
///
/// assert_eq!("uniform:0.5".parse::<Lengths>()?, Lengths::Uniform(0.5));
/// assert!("uniform:2".parse::<Lengths>().is_err());
/// # Ok::<(), linktax_loadgen::workload::WorkloadError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Lengths {
    /// Exactly the length asked for.
    #[default]
    Fixed,
    /// Uniform over the whole numbers from `floor(len(1-R))` to `ceil(len(1+R))`, as the
    /// `--random-range-ratio` of `vllm bench serve` does.
    Uniform(f64),
    /// Normal with a standard deviation of `S * len`, cut at four of them on either side.
    Normal(f64),
}

impl Lengths {
    /// A length of at least 1 drawn around `mean`.
    pub(crate) fn draw(self, mean: u64, rng: &mut impl Rng) -> u64 {
        let length = match self {
            Lengths::Fixed => mean,
            Lengths::Uniform(ratio) => {
                let low = (mean as f64 * (1.0 - ratio)).floor() as u64;
                rng.random_range(low.max(1)..=self.longest(mean))
            }
            Lengths::Normal(share) => {
                let z: f64 = StandardNormal.sample(rng);
                let z = z.clamp(-NORMAL_CUT, NORMAL_CUT);
                (mean as f64 * (1.0 + share * z)).round() as u64
            }
        };
        length.clamp(1, self.longest(mean))
    }

    /// The longest length that [`Self::draw`] can return.
    pub(crate) fn longest(self, mean: u64) -> u64 {
        let longest = match self {
            Lengths::Fixed => mean,
            Lengths::Uniform(ratio) => (mean as f64 * (1.0 + ratio)).ceil() as u64,
            Lengths::Normal(share) => (mean as f64 * (1.0 + share * NORMAL_CUT)).ceil() as u64,
        };
        longest.max(1)
    }
}

impl std::str::FromStr for Lengths {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = || WorkloadError::Setting {
            field: "lengths",
            value: format!("`{text}`"),
            expected: EXPECTED.to_owned(),
        };
        let (word, share) = match text.split_once(':') {
            None if text == "fixed" => return Ok(Lengths::Fixed),
            None => return Err(wrong()),
            Some((word, share)) => (word, share.parse::<f64>().map_err(|_| wrong())?),
        };
        if !(share > 0.0 && share < 1.0) {
            return Err(wrong());
        }
        match word {
            "uniform" => Ok(Lengths::Uniform(share)),
            "normal" => Ok(Lengths::Normal(share)),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Lengths {
    type Error = WorkloadError;

    fn try_from(text: String) -> Result<Self, WorkloadError> {
        text.parse()
    }
}

impl From<Lengths> for String {
    fn from(lengths: Lengths) -> String {
        lengths.to_string()
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Fixed => f.write_str("fixed"),
            Lengths::Uniform(ratio) => write!(f, "uniform:{ratio}"),
            Lengths::Normal(share) => write!(f, "normal:{share}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        for text in ["fixed", "uniform:0.5", "normal:0.25"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "uniform",
            "uniform:0",
            "uniform:1",
            "normal:NaN",
            "zipf:0.5",
            "normal:-0.1",
        ] {
            let message = text.parse::<Lengths>().unwrap_err().to_string();
            assert!(message.contains("`uniform:R`"), "{message}");
        }
    }

    #[test]
    fn the_mean_is_the_length_asked_for() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for lengths in [Lengths::Uniform(0.5), Lengths::Normal(0.2)] {
            let n = 4000;
            let sum: u64 = (0..n).map(|_| lengths.draw(1000, &mut rng)).sum();
            let mean = sum as f64 / f64::from(n);
            // Five standard errors of the wider of the two (uniform: 289 / sqrt(4000) = 4.6).
            assert!((mean - 1000.0).abs() < 23.0, "{lengths}: mean {mean}");
        }
    }

    #[test]
    fn normal_lengths_have_the_spread_asked_for() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let drawn: Vec<f64> = (0..4000)
            .map(|_| Lengths::Normal(0.1).draw(1000, &mut rng) as f64)
            .collect();
        let mean = drawn.iter().sum::<f64>() / 4000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((variance.sqrt() - 100.0).abs() < 8.0, "{}", variance.sqrt());
    }

    proptest! {
        #[test]
        fn draws_stay_within_their_bounds(mean in 1u64..200_000, share in 0.01f64..0.99, seed: u64) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for lengths in [Lengths::Fixed, Lengths::Uniform(share), Lengths::Normal(share)] {
                let length = lengths.draw(mean, &mut rng);
                prop_assert!(length >= 1 && length <= lengths.longest(mean));
            }
            let length = Lengths::Uniform(share).draw(mean, &mut rng) as f64;
            prop_assert!(length >= (mean as f64 * (1.0 - share)).floor());
            prop_assert_eq!(Lengths::Fixed.draw(mean, &mut rng), mean);
        }
    }
}
