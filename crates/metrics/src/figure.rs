use std::borrow::Cow;
use std::fmt;

/// Why a number is missing, in words for a reader of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(Cow<'static, str>);

impl Missing {
    /// A reason.
    pub fn because(reason: impl Into<Cow<'static, str>>) -> Self {
        Missing(reason.into())
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number, or the reason there is none: a missing number without a reason cannot be written down.
pub type Figure<T = f64> = Result<T, Missing>;

/// `Err` with this reason.
pub(crate) fn missing<T>(reason: impl Into<Cow<'static, str>>) -> Figure<T> {
    Err(Missing::because(reason))
}

/// `numerator / denominator`, or `reason` where the denominator is not positive.
pub(crate) fn ratio(numerator: f64, denominator: f64, reason: &'static str) -> Figure {
    if denominator > 0.0 {
        Ok(numerator / denominator)
    } else {
        missing(reason)
    }
}

/// Nanoseconds as seconds, for sums that need more than 64 bits.
pub(crate) fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

/// Nanoseconds as milliseconds.
pub(crate) fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}
