//! The table derived from framework sources: kernel definition -> class of the directory it lives in.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::class::Class;
use super::normalise::split_path;

/// Lines `kind <TAB> kernel <TAB> class <TAB> path`, written by `scripts/vllm-kernel-classes.py`. The class `-` is a
/// name that says too little (`kernel`) or whose directory has no class.
pub(crate) const TEXT: &str = include_str!("vllm-kernels.tsv");

/// A kernel definition in the sources of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    /// Written in Triton, so that traces show the bare function name.
    triton: bool,
    /// The class, if the path tells one.
    pub(crate) class: Option<Class>,
    /// Path within the framework's repository.
    pub(crate) path: &'a str,
}

/// Rows by kernel name. A name with several rows is ambiguous unless they agree.
static ROWS: LazyLock<HashMap<&'static str, Vec<Row<'static>>>> = LazyLock::new(|| {
    let mut rows: HashMap<&str, Vec<Row<'_>>> = HashMap::new();
    for (name, row) in TEXT.lines().filter_map(parse) {
        rows.entry(name).or_default().push(row);
    }
    rows
});

fn parse(line: &'static str) -> Option<(&'static str, Row<'static>)> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.split('\t');
    let (kind, name) = (fields.next()?, fields.next()?);
    let (class, path) = (fields.next()?, fields.next()?);
    let row = Row {
        triton: kind == "triton",
        class: Class::from_word(class),
        path,
    };
    Some((name, row))
}

/// The row for a name, if the name can be the one in the sources: a Triton kernel has no namespace, a CUDA kernel has
/// none, an anonymous one or one of the framework's own, never that of another library.
pub(crate) fn find(subject: &str) -> Option<Row<'static>> {
    let (path, leaf) = split_path(subject);
    let bare = path.is_empty() && leaf.len() == subject.len();
    let own = path
        .split("::")
        .next()
        .is_some_and(|first| matches!(first, "" | "vllm" | "(anonymous namespace)"));
    // Triton 2 appended which arguments are divisible by 16: `_fwd_kernel_0d1d2de`.
    let stem = leaf
        .rfind("_0d")
        .filter(|&at| {
            leaf[at + 1..]
                .bytes()
                .all(|b| b.is_ascii_digit() || b"dec".contains(&b))
        })
        .map_or(leaf, |at| &leaf[..at]);
    let rows = ROWS.get(leaf).or_else(|| ROWS.get(stem))?;
    let mut fitting = rows
        .iter()
        .filter(|row| if row.triton { bare } else { own });
    let first = *fitting.next()?;
    let agreed = fitting.all(|row| row.class == first.class);
    Some(Row {
        class: first.class.filter(|_| agreed),
        ..first
    })
}

/// The class of a name by the table.
pub(crate) fn class_of(subject: &str) -> Option<Class> {
    find(subject)?.class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_parses_to_a_known_class() {
        let lines: Vec<&str> = TEXT.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(lines.len(), 653);
        for line in lines {
            let class = line.split('\t').nth(2).unwrap();
            assert!(class == "-" || Class::from_word(class).is_some(), "{line}");
            assert!(parse(line).is_some(), "{line}");
        }
    }

    #[test]
    fn a_row_is_for_names_that_can_be_its_kernel() {
        let path = |name| find(name).map(|row| row.path);
        assert!(path("_gqa_sparse_fwd_kernel").is_some());
        assert_eq!(path("other::_gqa_sparse_fwd_kernel<1>"), None);
        assert_eq!(
            path("_gqa_sparse_fwd_kernel_0d1d2de34c"),
            path("_gqa_sparse_fwd_kernel")
        );
        assert!(path("vllm::merge_attn_states_kernel<float, 128>").is_some());
        assert_eq!(path("at::native::reduce_kernel<512, 1>"), None);
    }

    #[test]
    fn words_that_say_too_little_have_no_class() {
        for name in [
            "kernel",
            "_kernel",
            "oneshot",
            "signal_kernel",
            "reduce_kernel",
            "decode_kernel",
            "vllm::octave::reduce_kernel<1>",
        ] {
            assert_eq!(class_of(name), None, "{name}");
        }
    }
}
