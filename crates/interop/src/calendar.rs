/// `%Y%m%d-%H%M%S` in UTC of a wall-clock time in nanoseconds since 1970.
pub(crate) fn compact_utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (h, m, s) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{day:02}-{h:02}{m:02}{s:02}")
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Count from 0000-03-01, so that the leap day is the last day of a year, and of a 400-year era.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months of 31, 30, 31, 30, 31 days repeat from March on: 153 days for every five.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (951_868_800, "20000301-000000"),
            (1_709_164_800, "20240229-000000"),
            (1_795_961_943, "20261129-141903"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(compact_utc(seconds * 1_000_000_000), text);
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut last = (1970, 1, 1);
        for days in 1..146_097 {
            let (y, m, d) = civil(days);
            let leap = last.0 % 4 == 0 && (last.0 % 100 != 0 || last.0 % 400 == 0);
            let length = match last.1 {
                4 | 6 | 9 | 11 => 30,
                2 => 28 + u64::from(leap),
                _ => 31,
            };
            let expected = match last {
                (y, 12, 31) => (y + 1, 1, 1),
                (y, m, d) if d == length => (y, m + 1, 1),
                (y, m, d) => (y, m, d + 1),
            };
            assert_eq!((y, m, d), expected);
            last = expected;
        }
    }
}
