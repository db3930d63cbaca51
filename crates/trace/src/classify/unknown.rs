//! How much time no class is known for, and what to do about it.

use std::fmt::Write as _;

use serde::Serialize;

use super::Classes;
use super::class::Class;
use super::normalise::{normalise, subject};
use crate::timeline::{NameId, Names};

/// Above this share of kernel time a split is not to be trusted without looking at the unknown names.
pub const UNKNOWN_WARN_SHARE: f64 = 0.02;

/// How many names the report lists.
const TOP: usize = 10;

/// A name without a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnknownName {
    /// The demangled name.
    pub name: String,
    /// Kernel time, nanoseconds.
    pub total_ns: u64,
    /// Of all kernel time, 0 to 1.
    pub share: f64,
}

/// The kernel time without a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnknownReport {
    /// Kernel time of all names, nanoseconds.
    pub total_ns: u64,
    /// Kernel time of unknown names, nanoseconds.
    pub unknown_ns: u64,
    /// `unknown_ns / total_ns`; `None` without any kernel time.
    pub share: Option<f64>,
    /// How many names are unknown.
    pub names: usize,
    /// The unknown names with most time, at most ten.
    pub top: Vec<UnknownName>,
    /// Rules to complete and pass as `--rules FILE`; empty if nothing is unknown.
    pub stub: String,
}

impl UnknownReport {
    /// Whether the share is above [`UNKNOWN_WARN_SHARE`].
    pub fn is_too_much(&self) -> bool {
        self.share.is_some_and(|share| share > UNKNOWN_WARN_SHARE)
    }
}

/// Sums the kernel time of unknown names. `totals` gives time per name, in any order, a name more than once if need be.
///
/// ```
/// use linktax_trace::{Classes, Names, Rules, unknown_report};
///
/// let mut names = Names::default();
/// let known = names.push("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "");
/// let new = names.push("void lab::new_kernel<(int)4>(float *)", "new_kernel");
/// let classes = Classes::of(&names, &Rules::embedded());
///
/// let report = unknown_report(&names, &classes, [(known, 970), (new, 30)]);
/// assert_eq!(report.share, Some(0.03));
/// assert!(report.is_too_much());
/// assert!(report.stub.contains(r"name = '^lab::new_kernel\b'"));
/// ```
pub fn unknown_report(
    names: &Names,
    classes: &Classes,
    totals: impl IntoIterator<Item = (NameId, u64)>,
) -> UnknownReport {
    let mut total_ns = 0_u64;
    let mut by_id = vec![0_u64; names.len()];
    for (id, ns) in totals {
        total_ns += ns;
        if let Some(sum) = by_id.get_mut(id.0 as usize) {
            *sum += ns;
        }
    }
    let mut unknown: Vec<(&str, u64)> = names
        .iter()
        .filter(|&(id, _)| classes.name(id) == Class::UNKNOWN)
        .map(|(id, full)| (full, by_id[id.0 as usize]))
        .filter(|&(_, ns)| ns > 0)
        .collect();
    unknown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let share = |ns: u64| ns as f64 / total_ns as f64;
    let unknown_ns = unknown.iter().map(|u| u.1).sum();
    let count = unknown.len();
    unknown.truncate(TOP);
    UnknownReport {
        total_ns,
        unknown_ns,
        share: (total_ns > 0).then(|| share(unknown_ns)),
        names: count,
        stub: stub(&unknown),
        top: unknown
            .into_iter()
            .map(|(name, ns)| UnknownName {
                name: name.to_owned(),
                total_ns: ns,
                share: share(ns),
            })
            .collect(),
    }
}

/// A rule a name, its class left to the reader: `unknown` is a valid class, so the file works as it stands.
fn stub(unknown: &[(&str, u64)]) -> String {
    let mut text = String::new();
    for (name, ns) in unknown {
        let subject = subject(&normalise(name));
        let end = subject.find('<').unwrap_or(subject.len());
        let stem = regex::escape(&subject[..end]);
        let stem = stem.replace('\'', ".");
        let open = if end < subject.len() || subject.ends_with(|c: char| c.is_ascii_alphanumeric())
        {
            r"\b"
        } else {
            ""
        };
        let _ = write!(
            text,
            "[[rule]]\nclass = \"unknown\" # choose: linear, attention, ssm, moe_gemm, comm.custom_ar, …\nname = '^{stem}{open}'\nwhy = \"{:.3} ms in this trace\"\n\n",
            *ns as f64 / 1e6
        );
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    #[test]
    fn the_stub_is_a_valid_rule_file_that_matches_its_names() {
        let odd = [
            "void lab::a<(int)1>(T1 *)",
            "lab's kernel",
            "b.c$d",
            "kernel",
            "_ZN3lab3newEv",
            "(anonymous namespace)::zzz(int)",
        ];
        let mut names = Names::default();
        let ids: Vec<NameId> = odd.iter().map(|n| names.push(*n, "")).collect();
        let classes = Classes::of(&names, &Rules::embedded());
        let report = unknown_report(&names, &classes, ids.into_iter().zip(1..));
        assert_eq!((report.names, report.unknown_ns), (6, 21));
        assert_eq!(report.top[0].name, odd[5]);

        let file = tempfile::NamedTempFile::new().unwrap();
        let chosen = report.stub.replace("\"unknown\"", "\"act\"");
        std::fs::write(file.path(), chosen).unwrap();
        let rules = Rules::with_user_file(file.path()).unwrap();
        for name in odd {
            assert_eq!(
                rules.classify(name, "").class,
                Class::ACT,
                "{name}\n{}",
                report.stub
            );
        }
    }

    #[test]
    fn no_kernel_time_is_no_share() {
        let report = unknown_report(&Names::default(), &Classes::default(), []);
        assert_eq!((report.share, report.is_too_much()), (None, false));
        assert_eq!(report.stub, "");
    }
}
