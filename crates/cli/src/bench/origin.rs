//! Where a setting came from, for messages: a flag, or a line of the workload file.

use super::args::BenchArgs;

/// The name of a setting where the user set it: `--concurrency`, or `w.toml:3: concurrency`.
pub(crate) fn name(args: &BenchArgs, flag: &str, from_flag: bool, key: &str) -> String {
    let Some(path) = args.workload.as_ref().filter(|_| !from_flag) else {
        return flag.to_owned();
    };
    // The file was read a moment ago; its values have lost their places.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match line_of(&text, key) {
        Some(line) => format!("{}:{line}: {key}", path.display()),
        None => format!("{}: {key}", path.display()),
    }
}

fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    text.lines().position(sets).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_sets_a_key_is_found() {
        let text = "[run]\n# requests = 4\nrequests_more = 1\n  requests = 0\n";
        assert_eq!(line_of(text, "requests"), Some(4));
        assert_eq!(line_of(text, "concurrency"), None);
    }
}
