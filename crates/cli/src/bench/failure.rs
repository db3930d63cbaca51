//! What went wrong first: the counts of a verdict name outcomes, this shows one.

use linktax_records::{Note, Phase, RecordSource, RequestRecord, Verdict};

/// Code of the note.
pub(crate) const CODE: &str = "first_failure";

/// Longest quotation of an error body.
const MAX_BODY: usize = 160;

/// Adds the first failure among the measured requests to a verdict that has failures.
pub(crate) fn explain<R: RecordSource>(verdict: &mut Verdict, records: &R) -> Result<(), R::Error> {
    if !verdict.reasons.iter().any(|r| r.code == "failures") {
        return Ok(());
    }
    let mut first: Option<Note> = None;
    records.scan(&mut |record| {
        if first.is_none() && record.phase == Phase::Measured && record.outcome.is_failure() {
            first = Some(Note::new(CODE, describe(record)));
        }
    })?;
    verdict.notes.extend(first);
    Ok(())
}

fn describe(record: &RequestRecord) -> String {
    let mut text = format!("request {}, {}", record.index, record.outcome.as_str());
    if let Some(failure) = &record.failure {
        text.push_str(&format!(": {}", failure.message));
        let body = failure.body.as_deref().unwrap_or_default();
        let quoted: String = one_line(body).chars().take(MAX_BODY).collect();
        if !quoted.is_empty() && !failure.message.contains(&quoted) {
            text.push_str(&format!(": {quoted}"));
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
