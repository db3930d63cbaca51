//! Numbers on the command line: what is expected is said in words, with the range.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// A whole number from `MIN` to `MAX`.
pub(crate) fn whole<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    parse(text, MIN..=MAX)
}

/// The same, for the flags whose values are `u32`.
pub(crate) fn whole32<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    parse(text, MIN..=MAX)
}

/// Any number; its range is checked with the plan, where a workload file can set it too.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

fn parse<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!(
            "expected a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_said_with_the_range() {
        assert_eq!(whole::<1, 10>("10"), Ok(10));
        assert_eq!(whole32::<0, 3>("0"), Ok(0));
        for bad in ["0", "11", "-1", "", "1.5", "99999999999999999999999", "x"] {
            let said = whole::<1, 10>(bad).unwrap_err();
            assert_eq!(said, "expected a whole number from 1 to 10", "{bad}");
        }
        assert_eq!(number("1e3"), Ok(1000.0));
        assert!(number("fast").is_err());
    }
}
