use std::fmt;
use std::str::FromStr;

use linktax_records::Nanos;

use crate::Error;

/// Which step gaps count as stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallGap {
    /// Gaps longer than this.
    Fixed(Nanos),
    /// Gaps above the widest valley of the gap distribution, if there is one.
    Auto,
    /// None: nothing is filtered.
    Off,
}

impl StallGap {
    /// `fixed`, `auto` or `off`.
    pub fn mode(self) -> &'static str {
        match self {
            StallGap::Fixed(_) => "fixed",
            StallGap::Auto => "auto",
            StallGap::Off => "off",
        }
    }
}

impl FromStr for StallGap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let given = text.trim().to_ascii_lowercase();
        match given.as_str() {
            "auto" => return Ok(StallGap::Auto),
            "off" => return Ok(StallGap::Off),
            _ => {}
        }
        // "s" last: the other two end in it.
        [("ms", 1e6), ("us", 1e3), ("s", 1e9)]
            .into_iter()
            .find_map(|(unit, ns)| Some((given.strip_suffix(unit)?, ns)))
            .and_then(|(number, ns)| Some(number.trim_end().parse::<f64>().ok()? * ns))
            .filter(|ns| ns.is_finite() && *ns >= 1.0)
            .map(|ns| StallGap::Fixed(Nanos::from_nanos(ns.round() as u64)))
            .ok_or_else(|| Error::StallGap {
                text: text.to_owned(),
            })
    }
}

impl fmt::Display for StallGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StallGap::Fixed(gap) => write!(f, "{}ms", gap.as_millis_f64()),
            other => f.write_str(other.mode()),
        }
    }
}

/// A latency that a service-level objective limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SloMetric {
    /// Time to the first token.
    Ttft,
    /// Time per output token.
    Tpot,
    /// Time to the last token.
    E2el,
}

impl SloMetric {
    /// The name in options and files.
    pub fn as_str(self) -> &'static str {
        match self {
            SloMetric::Ttft => "ttft",
            SloMetric::Tpot => "tpot",
            SloMetric::E2el => "e2el",
        }
    }
}

/// One service-level objective: a latency and its upper limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// What is limited.
    pub metric: SloMetric,
    /// The limit in milliseconds, itself allowed.
    pub ms: f64,
}

impl FromStr for Slo {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (metric, limit) = text.split_once(':').ok_or_else(|| Error::SloShape {
            text: text.to_owned(),
        })?;
        let metric = match metric.trim() {
            "ttft" => SloMetric::Ttft,
            "tpot" => SloMetric::Tpot,
            "e2el" => SloMetric::E2el,
            other => {
                return Err(Error::SloMetric {
                    text: text.to_owned(),
                    metric: other.to_owned(),
                });
            }
        };
        match limit.trim().parse::<f64>() {
            Ok(ms) if ms.is_finite() && ms > 0.0 => Ok(Slo { metric, ms }),
            _ => Err(Error::SloLimit {
                text: text.to_owned(),
                limit: limit.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.metric.as_str(), self.ms)
    }
}

/// What [`crate::summarize`] is asked for beyond the records.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which step gaps are stalls.
    pub stall: StallGap,
    /// GPUs that serve the endpoint; the per-GPU figures divide by it.
    pub gpus: Option<u32>,
    /// Objectives that `request_goodput` and `slo_attainment` judge by; all must hold.
    pub slos: Vec<Slo>,
    /// Resamples of the bootstrap intervals; 0 leaves them out.
    pub bootstrap_resamples: u32,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Percentiles to report, each above 0 and below 100; others are ignored.
    pub percentiles: Vec<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            stall: StallGap::Auto,
            gpus: None,
            slos: Vec::new(),
            bootstrap_resamples: 1000,
            seed: 0,
            percentiles: vec![50.0, 90.0, 95.0, 99.0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_gaps_parse_and_print() {
        let fixed = |ms| Ok(StallGap::Fixed(Nanos::from_millis(ms)));
        assert_eq!("200ms".parse(), fixed(200));
        assert_eq!("0.2s".parse(), fixed(200));
        assert_eq!("1500 us".parse::<StallGap>().unwrap().to_string(), "1.5ms");
        assert_eq!("AUTO".parse(), Ok(StallGap::Auto));
        assert_eq!(" off".parse(), Ok(StallGap::Off));
        for bad in ["200", "0ms", "-1s", "nans", "infs", "ms", "", "fast"] {
            let error = bad.parse::<StallGap>().unwrap_err().to_string();
            assert!(error.contains("auto, or off"), "{bad}: {error}");
        }
    }

    #[test]
    fn objectives_parse_and_say_what_is_valid() {
        let slo: Slo = "ttft:500".parse().unwrap();
        assert_eq!((slo.metric, slo.ms), (SloMetric::Ttft, 500.0));
        assert_eq!("e2el:2e3".parse::<Slo>().unwrap().to_string(), "e2el:2000");
        for (bad, says) in [
            ("ttft", "METRIC:MS"),
            ("itl:5", "valid are ttft, tpot, e2el"),
            ("tpot:0", "not a positive number"),
            ("tpot:NaN", "not a positive number"),
            ("tpot:", "not a positive number"),
        ] {
            let error = bad.parse::<Slo>().unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
