//! A rule file: its text, checked, with the line of each fault.

use std::path::Path;

use regex::bytes::RegexBuilder;
use serde::Deserialize;
use toml::Spanned;

use super::class::Class;
use crate::TraceError;

/// A rule as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    class: Spanned<String>,
    name: Spanned<Patterns>,
    unless: Option<Spanned<Patterns>>,
    why: Option<String>,
}

/// A file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleText>,
}

/// One pattern or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Patterns {
    One(String),
    Many(Vec<String>),
}

impl Patterns {
    fn as_slice(&self) -> &[String] {
        match self {
            Patterns::One(one) => std::slice::from_ref(one),
            Patterns::Many(many) => many,
        }
    }
}

/// A rule whose class and patterns are valid.
pub(crate) struct Checked {
    pub(crate) class: Class,
    pub(crate) name: Vec<String>,
    pub(crate) unless: Vec<String>,
    pub(crate) why: String,
}

/// The rules of a text. `path` is for messages.
pub(crate) fn parse(path: Option<&Path>, text: &str) -> Result<Vec<Checked>, TraceError> {
    let at = Source { path, text };
    let file: RuleFile =
        toml::from_str(text).map_err(|e| at.error(e.span().map_or(0, |s| s.start), e.message()))?;
    let checked = file.rule.into_iter().map(|rule| {
        Ok(Checked {
            class: at.class(&rule.class)?,
            name: at.patterns(&rule.name)?,
            unless: rule
                .unless
                .map_or(Ok(Vec::new()), |unless| at.patterns(&unless))?,
            why: rule.why.unwrap_or_default(),
        })
    });
    checked.collect()
}

/// A file that is being checked, to tell places in it.
struct Source<'a> {
    path: Option<&'a Path>,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> TraceError {
        let before = self.text.get(..at).unwrap_or(self.text);
        TraceError::Rules {
            path: self.path.map(Path::to_owned),
            line: before.bytes().filter(|&b| b == b'\n').count() + 1,
            what: what.into(),
        }
    }

    fn class(&self, word: &Spanned<String>) -> Result<Class, TraceError> {
        Class::from_word(word.get_ref())
            .filter(|class| class.for_rules())
            .ok_or_else(|| {
                let valid: Vec<&str> = Class::ALL
                    .iter()
                    .filter(|c| c.for_rules())
                    .map(|c| c.as_str())
                    .collect();
                self.error(
                    word.span().start,
                    format!(
                        "unknown class {:?}, one of: {}",
                        word.get_ref(),
                        valid.join(", ")
                    ),
                )
            })
    }

    fn patterns(&self, written: &Spanned<Patterns>) -> Result<Vec<String>, TraceError> {
        let at = written.span().start;
        let texts = written.get_ref().as_slice();
        if texts.is_empty() {
            return Err(self.error(at, "a rule needs at least one pattern"));
        }
        for text in texts {
            let compiled = RegexBuilder::new(text)
                .unicode(false)
                .build()
                .map_err(|e| {
                    self.error(
                        at,
                        format!("pattern {text:?}: {}", last_line(&e.to_string())),
                    )
                })?;
            // Such a pattern would swallow every name and hide what is unknown.
            if compiled.is_match(b"") {
                return Err(self.error(
                    at,
                    format!("pattern {text:?} matches an empty name, and so every name"),
                ));
            }
        }
        Ok(texts.to_vec())
    }
}

/// The regex crate draws a picture over several lines; its last one says what is wrong.
fn last_line(text: &str) -> &str {
    text.lines()
        .last()
        .map_or(text, |l| l.trim_start_matches("error: "))
}
