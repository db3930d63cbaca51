//! The first walk over the records: scalars of each request, and what the later walks must know.

use linktax_records::{Outcome, Phase, RecordSource, RequestRecord};
use std::collections::BTreeMap;

use crate::inflight::union;
use crate::request::{Request, times_agree, token_steps};
use crate::threshold::GapHistogram;

/// What one walk over all records leaves.
pub(crate) struct Survey {
    /// The measured requests, in the order of the records until [`Self::sort`].
    pub(crate) requests: Vec<Request>,
    /// Records of the prime and warm-up phases.
    pub(crate) warmup_requests: u64,
    pub(crate) failures: BTreeMap<Outcome, u64>,
    /// When some request of any phase was between its send and its first token.
    pub(crate) prefills: Vec<(u64, u64)>,
    pub(crate) gaps: GapHistogram,
    /// Token-bearing reads of requests whose tokens were delivered.
    pub(crate) delivered_reads: usize,
    /// Step gaps of completed requests.
    pub(crate) gap_count: usize,
    pub(crate) longest_gap: u64,
    pub(crate) coalesced: Coalesced,
}

/// Token reads of completed requests that finished more than one event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coalesced {
    pub(crate) shared: u64,
    pub(crate) reads: u64,
}

impl Survey {
    pub(crate) fn take<S: RecordSource + ?Sized>(source: &S) -> Result<Self, S::Error> {
        let mut survey = Survey {
            requests: Vec::new(),
            warmup_requests: 0,
            failures: BTreeMap::new(),
            prefills: Vec::new(),
            gaps: GapHistogram::new(),
            delivered_reads: 0,
            gap_count: 0,
            longest_gap: 0,
            coalesced: Coalesced::default(),
        };
        source.scan(&mut |record| survey.visit(record))?;
        survey.prefills = union(std::mem::take(&mut survey.prefills));
        Ok(survey)
    }

    fn visit(&mut self, record: &RequestRecord) {
        if record.phase != Phase::Measured {
            self.warmup_requests += 1;
            if times_agree(record) {
                self.prefills.extend(Request::of(record).prefill());
            }
            return;
        }
        let request = Request::of(record);
        self.prefills.extend(request.prefill());
        if record.outcome.is_failure() {
            *self.failures.entry(record.outcome).or_default() += 1;
        }
        if request.delivered() && request.sent.is_some() {
            self.delivered_reads += request.token_reads as usize;
        }
        if request.completed() {
            self.visit_gaps(record);
            self.visit_events(record);
        }
        self.requests.push(request);
    }

    fn visit_gaps(&mut self, record: &RequestRecord) {
        let mut steps = token_steps(record);
        let Some((mut before, _)) = steps.next() else {
            return;
        };
        for (t, _) in steps {
            let gap = t.saturating_sub(before);
            self.gaps.add(gap);
            self.gap_count += 1;
            self.longest_gap = self.longest_gap.max(gap);
            before = t;
        }
    }

    /// The last token read is left out: it may carry the finish, usage and end markers by design.
    fn visit_events(&mut self, record: &RequestRecord) {
        let reads = &record.reads;
        let with_tokens = reads.tokens.iter().zip(&reads.events);
        let mut events = with_tokens.filter(|&(&t, _)| t > 0).map(|(_, &e)| e);
        events.next_back();
        for events in events {
            self.coalesced.reads += 1;
            self.coalesced.shared += u64::from(events > 1);
        }
    }

    /// Puts the requests into an order that does not depend on the order of the records.
    pub(crate) fn sort(&mut self) {
        self.requests.sort_unstable();
    }

    /// First send and last token of the cell.
    pub(crate) fn window(&self) -> Option<(u64, u64)> {
        let start = self.requests.iter().filter_map(|r| r.sent).min()?;
        let end = self.requests.iter().filter_map(|r| r.last).max()?;
        (start < end).then_some((start, end))
    }
}
