//! Facts on the client's machine and command line that go into the manifest. No environment variable and no
//! secret is ever recorded.

use serde_json::{Map, Value, json};

/// The command line with the values of `--header` removed, and those of headers given as one word. Where the program
/// lies is nobody's business.
pub(crate) fn command_line(headers: &[String]) -> Vec<String> {
    std::iter::once("linktax".to_owned())
        .chain(std::env::args().skip(1))
        .map(|arg| {
            let header = headers.iter().find(|h| arg.ends_with(h.as_str()));
            match header {
                Some(header) => {
                    let name = header.split('=').next().unwrap_or_default();
                    arg.replace(header.as_str(), &format!("{name}=REMOVED"))
                }
                None => arg,
            }
        })
        .collect()
}

/// What the client ran on.
pub(crate) fn describe() -> Map<String, Value> {
    let first = |path: &str, key: &str| -> Option<String> {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|t| t.trim().to_owned())
    };
    let mut map = Map::new();
    map.insert("os".to_owned(), json!(std::env::consts::OS));
    map.insert("arch".to_owned(), json!(std::env::consts::ARCH));
    map.insert(
        "kernel".to_owned(),
        json!(read("/proc/sys/kernel/osrelease")),
    );
    map.insert(
        "cpu_model".to_owned(),
        json!(first("/proc/cpuinfo", "model name")),
    );
    let cpus = std::thread::available_parallelism().ok().map(usize::from);
    map.insert("cpus_available".to_owned(), json!(cpus));
    map.insert(
        "cpus_allowed".to_owned(),
        json!(first("/proc/self/status", "Cpus_allowed_list")),
    );
    map.insert(
        "cpu_governor".to_owned(),
        json!(read(
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
        )),
    );
    map.insert("load_average".to_owned(), json!(read("/proc/loadavg")));
    map
}

/// `YYYYMMDD-HHMMSS` in UTC.
pub(crate) fn utc_stamp(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days as i64);
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Days since 1970-01-01 to a Gregorian date (Howard Hinnant's public-domain algorithm).
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_stamps() {
        assert_eq!(utc_stamp(0), "19700101-000000");
        assert_eq!(utc_stamp(1_795_962_183_000_000_000), "20261129-142303");
        assert_eq!(utc_stamp(951_782_400_000_000_000), "20000229-000000");
    }
}
