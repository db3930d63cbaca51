//! The ordered rules: the embedded file, and a user's before it.

use std::fs;
use std::path::{Path, PathBuf};

use regex::bytes::{RegexSet, RegexSetBuilder};
use serde::Serialize;

use super::class::Class;
use super::normalise::{is_mangled, normalise, subject};
use super::rule_file;
use super::table::{self, Row};
use crate::TraceError;

/// The rules that the binary brings along.
const EMBEDDED: &str = include_str!("../rules.toml");

/// A rule that can be matched.
#[derive(Clone, Debug)]
struct Rule {
    class: Class,
    /// `None` for the embedded file.
    file: Option<PathBuf>,
    /// Within its file, from 1.
    number: usize,
    why: String,
}

/// What a pattern of the set belongs to.
#[derive(Clone, Debug)]
struct Pattern {
    rule: usize,
    /// The pattern takes a match back.
    unless: bool,
    text: String,
}

/// What decided a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The rule with this index in the order of matching, from 0.
    Rule(usize),
    /// A row of the table derived from framework sources.
    Table,
    /// Nothing: the name is unknown.
    Nothing,
}

/// The class of a name and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The class.
    pub class: Class,
    /// The rule or the table.
    pub rule: Decided,
}

/// A rule, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleRef {
    /// The user's file; `None` for the rules in the binary.
    pub file: Option<PathBuf>,
    /// Number within its file, from 1.
    pub number: usize,
    /// The class it gives.
    pub class: Class,
    /// The pattern that matched.
    pub pattern: String,
    /// The rule's own comment.
    pub why: String,
}

/// Ordered rules, ready to match.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    patterns: Vec<Pattern>,
    set: RegexSet,
    hash: String,
}

impl Rules {
    /// The rules in the binary.
    ///
    /// ```
    /// use linktax_trace::{Class, Rules};
    ///
    /// let rules = Rules::embedded();
    /// let name = "ncclDevKernel_AllReduce_bf16_RING(ncclDevKernelArgsStorage<(unsigned long)4096>)";
    /// assert_eq!(rules.classify(name, "ncclDevKernel_AllReduce_bf16_RING").class, Class::COMM_NCCL);
    /// ```
    pub fn embedded() -> Rules {
        // A test holds the embedded file to be valid. Were it not, every kernel would be reported as unknown.
        Rules::build(&[(None, EMBEDDED)]).unwrap_or_else(|_| Rules {
            rules: Vec::new(),
            patterns: Vec::new(),
            set: RegexSet::empty(),
            hash: hash(&[]),
        })
    }

    /// The rules of a file, then those in the binary.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, has an unknown word, an unknown class or a pattern that is none; the
    /// error has the line.
    pub fn with_user_file(path: &Path) -> Result<Rules, TraceError> {
        let text =
            fs::read_to_string(path).map_err(TraceError::io(path, "reading kernel rules"))?;
        Rules::build(&[(Some(path), &text), (None, EMBEDDED)])
    }

    fn build(files: &[(Option<&Path>, &str)]) -> Result<Rules, TraceError> {
        let mut rules = Vec::new();
        let mut patterns = Vec::new();
        for &(path, text) in files {
            for (index, read) in rule_file::parse(path, text)?.into_iter().enumerate() {
                for (texts, unless) in [(read.name, false), (read.unless, true)] {
                    patterns.extend(texts.into_iter().map(|text| Pattern {
                        rule: rules.len(),
                        unless,
                        text,
                    }));
                }
                rules.push(Rule {
                    class: read.class,
                    file: path.map(Path::to_owned),
                    number: index + 1,
                    why: read.why,
                });
            }
        }
        let set = RegexSetBuilder::new(patterns.iter().map(|p| p.text.as_str()))
            .unicode(false)
            .size_limit(1 << 26)
            .build()
            .map_err(|e| TraceError::Rules {
                path: files.iter().find_map(|f| f.0).map(Path::to_owned),
                line: 1,
                what: format!("the patterns together: {e}"),
            })?;
        let texts: Vec<&str> = files.iter().map(|f| f.1).collect();
        Ok(Rules {
            rules,
            patterns,
            set,
            hash: hash(&texts),
        })
    }

    /// Sixteen hexadecimal digits that change with any change of the rules or of the table: two results may only be
    /// compared if theirs are equal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The class of a kernel by its demangled and its short name.
    pub fn classify(&self, full: &str, short: &str) -> Match {
        let name = if full.is_empty() { short } else { full };
        let name = normalise(name);
        let subject = subject(&name);
        let first = self.matching(&subject).next();
        // A symbol that no pattern knows by its identifiers may still have a plain short name.
        let first = first.or_else(|| {
            (is_mangled(&name) && !is_mangled(short))
                .then(|| self.matching(short).next())
                .flatten()
        });
        if let Some((rule, _)) = first {
            return Match {
                class: self.rules[rule].class,
                rule: Decided::Rule(rule),
            };
        }
        table::class_of(&subject).map_or(
            Match {
                class: Class::UNKNOWN,
                rule: Decided::Nothing,
            },
            |class| Match {
                class,
                rule: Decided::Table,
            },
        )
    }

    /// All rules that match, in order, each with the index of its first matching pattern.
    pub(crate) fn matching(&self, subject: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
        let hits: Vec<usize> = self.set.matches(subject.as_bytes()).into_iter().collect();
        let mut rules: Vec<(usize, usize)> = Vec::new();
        for &hit in hits.iter().filter(|&&h| !self.patterns[h].unless) {
            let rule = self.patterns[hit].rule;
            let taken_back = hits
                .iter()
                .any(|&h| self.patterns[h].unless && self.patterns[h].rule == rule);
            if !taken_back && rules.last().is_none_or(|last| last.0 != rule) {
                rules.push((rule, hit));
            }
        }
        rules.into_iter()
    }

    /// A rule by its place in the order of matching, with one of its patterns.
    pub(crate) fn rule_ref(&self, (rule, pattern): (usize, usize)) -> RuleRef {
        let entry = &self.rules[rule];
        RuleRef {
            file: entry.file.clone(),
            number: entry.number,
            class: entry.class,
            pattern: self.patterns[pattern].text.clone(),
            why: entry.why.clone(),
        }
    }

    /// The row of the source-derived table for a name, whether or not a rule comes first.
    pub(crate) fn table_row(subject: &str) -> Option<Row<'static>> {
        table::find(subject)
    }
}

/// FNV-1a, 64 bits: no secret to protect, only a change to notice.
fn hash(texts: &[&str]) -> String {
    let bytes = texts
        .iter()
        .copied()
        .chain([table::TEXT])
        .flat_map(|text| text.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Result<Rules, TraceError> {
        Rules::build(&[(Some(Path::new("my.toml")), text), (None, EMBEDDED)])
    }

    #[test]
    fn the_embedded_rules_are_valid() {
        let rules = Rules::build(&[(None, EMBEDDED)]).unwrap();
        assert!(rules.rules.iter().all(|rule| !rule.why.is_empty()));
        assert_eq!(rules.hash(), Rules::embedded().hash());
    }

    #[test]
    fn the_users_rules_come_first() {
        let rules = user(
            "[[rule]]\nclass = 'moe_gemm'\nname = ['^nvjet_', 'x']\nunless = 'splitK'\nwhy = 'only experts here'\n",
        )
        .unwrap();
        let class = |name| rules.classify(name, "").class;
        assert_eq!(class("nvjet_tst_64x8_TNT"), Class::MOE_GEMM);
        assert_eq!(class("nvjet_tst_64x8_splitK_TNT"), Class::LINEAR);
        assert_ne!(rules.hash(), Rules::embedded().hash());
        let why = rules.explain("nvjet_tst_64x8_TNT");
        let rule = why.rule.unwrap();
        assert_eq!((rule.number, rule.pattern.as_str()), (1, "^nvjet_"));
        assert_eq!(rule.file.as_deref(), Some(Path::new("my.toml")));
        assert_eq!(why.later[0].class, Class::LINEAR);
        assert_eq!(why.later[0].file, None);
    }

    #[test]
    fn faults_have_their_file_and_line() {
        for (text, line, words) in [
            (
                "[[rule]]\nclass = 'gemm'\nname = 'x'\n",
                2,
                &[
                    "unknown class \"gemm\"",
                    "linear, linear.splitk_reduce",
                    "comm.nccl",
                ][..],
            ),
            (
                "\n[[rule]]\nname = 'x'\nclass = 'graph'\n",
                4,
                &["unknown class \"graph\""],
            ),
            (
                "[[rule]]\nclass = 'norm'\nname = '('\n",
                3,
                &["pattern \"(\"", "unclosed group"],
            ),
            (
                "[[rule]]\nclass = 'norm'\nname = ['a', 'b*']\n",
                3,
                &["\"b*\"", "every name"],
            ),
            (
                "[[rule]]\nclass = 'norm'\nname = []\n",
                3,
                &["at least one pattern"],
            ),
            (
                "[[rule]]\nclass = 'norm'\nname = 'x'\npattern = 'y'\n",
                4,
                &["unknown field `pattern`", "`unless`"],
            ),
            ("[[rule]]\nname = 'x'\n", 1, &["missing field `class`"]),
            ("[[rule]\n", 1, &["]"]),
        ] {
            let error = user(text).unwrap_err();
            let shown = error.to_string();
            assert!(shown.starts_with(&format!("my.toml:{line}: ")), "{shown}");
            for word in words {
                assert!(shown.contains(word), "{word:?} in {shown}");
            }
        }
    }

    #[test]
    fn a_symbol_without_known_identifiers_falls_back_on_its_short_name() {
        let rules = Rules::embedded();
        let class = |full, short| rules.classify(full, short).class;
        assert_eq!(class("_ZN3lab1xEv", "fmha_x"), Class::ATTENTION);
        assert_eq!(class("_ZN3lab1xEv", "_ZN3lab1xEv"), Class::UNKNOWN);
        assert_eq!(class("", "nvjet_a"), Class::LINEAR);
    }
}
