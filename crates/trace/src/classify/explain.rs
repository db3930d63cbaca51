//! Why a name has its class.

use std::fmt;

use serde::Serialize;

use super::class::Class;
use super::normalise::{is_mangled, normalise, subject};
use super::rules::{RuleRef, Rules};

/// A row of the table derived from framework sources, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableRow {
    /// The class its directory has; `None` if the name says too little to decide by.
    pub class: Option<Class>,
    /// Path of the kernel's definition within the framework's repository.
    pub path: String,
}

/// Everything that bears on the class of one name. [`fmt::Display`] gives it as text.
///
/// ```
/// use linktax_trace::{Class, Rules};
///
/// let why = Rules::embedded().explain("void vllm::cross_device_reduce_1stage<__half, (int)2>(T1 *)");
/// assert_eq!(why.class, Class::COMM_CUSTOM_AR);
/// assert_eq!(why.matched_on, "vllm::cross_device_reduce_1stage<__half, 2>");
/// assert!(why.to_string().contains("cross_device_"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The name as given.
    pub name: String,
    /// In one spelling, whichever demangler wrote it.
    pub normalised: String,
    /// What patterns see: without parameters, or the identifiers of a mangled name.
    pub matched_on: String,
    /// The class.
    pub class: Class,
    /// The rule that decided.
    pub rule: Option<RuleRef>,
    /// Later rules that match too: what would decide if the first were not there.
    pub later: Vec<RuleRef>,
    /// The row of the table; decides if no rule does.
    pub table: Option<TableRow>,
    /// The name seems to be cut off, as listings do at a fixed width: a full name may have another class.
    pub truncated: bool,
}

impl Rules {
    /// Explains the class of a name as it stands in an export or a listing.
    pub fn explain(&self, name: &str) -> Explanation {
        let normalised = normalise(name);
        let matched_on = subject(&normalised);
        let mut rules = self.matching(&matched_on).map(|hit| self.rule_ref(hit));
        let rule = rules.next();
        let later = rules.collect();
        let table = Rules::table_row(&matched_on).map(|row| TableRow {
            class: row.class,
            path: row.path.to_owned(),
        });
        Explanation {
            class: self.classify(name, "").class,
            name: name.to_owned(),
            truncated: is_truncated(&normalised),
            normalised,
            matched_on,
            rule,
            later,
            table,
        }
    }
}

/// A listing's ellipsis, or brackets that never close at the widths listings cut at.
fn is_truncated(name: &str) -> bool {
    let open = name.matches(['<', '(']).count() > name.matches(['>', ')']).count();
    name.ends_with('…') || name.ends_with("...") || (open && !is_mangled(name))
}

/// `rule 12`, `rule 2 of rules.toml`.
fn place(rule: &RuleRef) -> String {
    match &rule.file {
        Some(file) => format!("rule {} of {}", rule.number, file.display()),
        None => format!("built-in rule {}", rule.number),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name        {}", self.name)?;
        if self.matched_on != self.name {
            writeln!(f, "matched on  {}", self.matched_on)?;
        }
        if self.truncated {
            writeln!(
                f,
                "            the name seems to be cut off: the full one may have another class"
            )?;
        }
        writeln!(
            f,
            "class       {} (group {})",
            self.class,
            self.class.group()
        )?;
        match (&self.rule, &self.table) {
            (Some(rule), _) => {
                writeln!(f, "decided by  {}: {}", place(rule), rule.pattern)?;
                if !rule.why.is_empty() {
                    writeln!(f, "            {}", rule.why)?;
                }
            }
            (
                None,
                Some(TableRow {
                    class: Some(_),
                    path,
                }),
            ) => {
                writeln!(f, "decided by  the table of vLLM's kernels: {path}")?;
            }
            (None, _) => writeln!(
                f,
                "decided by  nothing: no rule matches and the table does not decide"
            )?,
        }
        for rule in &self.later {
            writeln!(
                f,
                "also        {}: {} ({})",
                place(rule),
                rule.class,
                rule.pattern
            )?;
        }
        match &self.table {
            Some(TableRow { class: None, path }) => {
                writeln!(
                    f,
                    "table       {path}, but the name or the directory says too little"
                )
            }
            Some(TableRow {
                class: Some(class),
                path,
            }) if self.rule.is_some() => {
                writeln!(f, "table       {class} ({path})")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_a_table_row_and_nothing() {
        let rules = Rules::embedded();
        let by_rule = rules.explain("void at::native::reduce_kernel<(int)512, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(T3)");
        assert_eq!(by_rule.class, Class::SAMPLE);
        assert!(by_rule.later.iter().any(|r| r.class == Class::ELEM));
        let by_table = rules.explain("_hc_combine_kernel");
        assert_eq!(by_table.rule, None);
        assert_eq!(
            by_table.table.as_ref().unwrap().path,
            "vllm/models/qwen4_exp/amd/ops/hc.py"
        );
        assert!(by_table.to_string().contains("decided by  the table"));
        let nothing = rules.explain("kernel");
        assert_eq!(nothing.class, Class::UNKNOWN);
        assert!(nothing.to_string().contains("says too little"), "{nothing}");
        assert!(
            rules
                .explain("someone::new<1>")
                .to_string()
                .contains("nothing")
        );
    }

    #[test]
    fn a_name_cut_off_by_a_listing_is_noticed() {
        let rules = Rules::embedded();
        for (name, cut) in [
            (
                "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::Fla",
                true,
            ),
            ("void vllm::rms_norm_kernel<c10::BF…", true),
            ("void vllm::rms_norm_ker...", true),
            ("f<a>(int)", false),
            ("f<&a::operator->>(int)", false),
        ] {
            assert_eq!(rules.explain(name).truncated, cut, "{name}");
        }
    }
}
