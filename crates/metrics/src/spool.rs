//! The one large buffer, and the two walks that fill it.
//!
//! Percentiles of gaps and the sliding peak need every read at once. Fifteen million reads are 123 MB as
//! one `u64` each, so time and tokens share a word and the same buffer serves both walks.

use linktax_records::{Phase, RecordSource, RequestRecord};

use crate::distribution::Distribution;
use crate::figure::millis;
use crate::inflight::Overlap;
use crate::request::{Request, Standing, times_agree, token_steps};
use crate::survey::Survey;
use crate::threshold::Threshold;

const TOKEN_BITS: u32 = 20;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
const SECOND: u64 = 1_000_000_000;

/// `time << 20 | tokens`: exact to the nanosecond for spans below 4.8 hours, coarser beyond.
#[derive(Clone, Copy)]
struct Packing {
    shift: u32,
}

impl Packing {
    fn for_span(longest: u64) -> Self {
        Packing {
            shift: (TOKEN_BITS).saturating_sub(longest.leading_zeros()),
        }
    }

    fn pack(self, ns: u64, tokens: u32) -> u64 {
        ((ns >> self.shift) << TOKEN_BITS) | u64::from(tokens).min(TOKEN_MASK)
    }

    fn ns(self, word: u64) -> u64 {
        (word >> TOKEN_BITS) << self.shift
    }

    fn tokens(word: u64) -> u64 {
        word & TOKEN_MASK
    }
}

/// The buffer; each walk clears it.
pub(crate) struct Spool {
    words: Vec<u64>,
}

/// What the walk by event time found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Most tokens within any one second.
    pub(crate) peak_per_second: u64,
    /// Tokens within the steady window, by the time of their read.
    pub(crate) steady_tokens: u64,
}

/// Step gaps of all completed requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    pub(crate) step_gap: Option<Distribution>,
    pub(crate) token_time: Option<Distribution>,
    pub(crate) longest_normal: Option<u64>,
    pub(crate) shortest_stall: Option<u64>,
    /// `[normal, stall][clean, interfered]`.
    pub(crate) classes: [[u64; 2]; 2],
    pub(crate) clean_ns: u128,
    pub(crate) clean_tokens: u64,
}

impl Spool {
    pub(crate) fn for_survey(survey: &Survey) -> Self {
        Spool {
            words: Vec::with_capacity(survey.delivered_reads.max(survey.gap_count)),
        }
    }

    /// A source may have grown since it was counted; what is new is left for the next summary.
    fn push(words: &mut Vec<u64>, word: u64) {
        if words.len() < words.capacity() {
            words.push(word);
        }
    }

    /// Walks the delivered tokens by time: the peak over a sliding second, and the steady window `(from, to]`.
    pub(crate) fn deliver<S: RecordSource + ?Sized>(
        &mut self,
        source: &S,
        survey: &Survey,
        steady: Option<(u64, u64)>,
    ) -> Result<Delivered, S::Error> {
        let Some((origin, end)) = survey.window() else {
            return Ok(Delivered::default());
        };
        let packing = Packing::for_span(end - origin);
        let words = &mut self.words;
        words.clear();
        let mut steady_tokens = 0;
        let mut slot = 0;
        source.scan(&mut |record| {
            let Some(request) = measured(record, &survey.requests, &mut slot) else {
                return;
            };
            if !request.delivered() || !times_agree(record) {
                return;
            }
            for (t, tokens) in token_steps(record) {
                if steady.is_some_and(|(from, to)| from < t && t <= to) {
                    steady_tokens += u64::from(tokens);
                }
                Self::push(words, packing.pack(t.saturating_sub(origin), tokens));
            }
        })?;
        words.sort_unstable();
        Ok(Delivered {
            peak_per_second: peak(words, packing),
            steady_tokens,
        })
    }

    /// Walks the step gaps: sums for each request (left in `survey.requests`), classes, distributions.
    pub(crate) fn gaps<S: RecordSource + ?Sized>(
        &mut self,
        source: &S,
        survey: &mut Survey,
        threshold: Threshold,
        percentiles: &[f64],
    ) -> Result<Gaps, S::Error> {
        let packing = Packing::for_span(survey.longest_gap);
        let words = &mut self.words;
        words.clear();
        let mut gaps = Gaps::default();
        let (requests, prefills) = (&mut survey.requests, &survey.prefills);
        let mut slot = 0;
        source.scan(&mut |record| {
            if record.phase != Phase::Measured {
                return;
            }
            let request = requests.get_mut(slot);
            slot += 1;
            let Some(request) = request.filter(|r| r.standing == Standing::Completed) else {
                return;
            };
            let mut steps = token_steps(record);
            let Some((mut before, _)) = steps.next() else {
                return;
            };
            let mut overlap = Overlap::new(prefills, before);
            for (t, tokens) in steps {
                let gap = t.saturating_sub(before);
                let stall = threshold.is_stall(gap);
                gaps.class(gap, tokens, stall, overlap.hits(before, t));
                add(request, gap, tokens, stall);
                // Weight 0 keeps reads of unknown size out of the token times.
                let tokens = if request.exact { tokens } else { 0 };
                Self::push(words, packing.pack(gap, tokens));
                before = t;
            }
        })?;
        words.sort_unstable();
        let step = |&word: &u64| (millis(packing.ns(word)), 1);
        gaps.step_gap = Distribution::of_sorted(|| words.iter().map(step), percentiles);
        gaps.token_time = token_time(words, packing, percentiles);
        Ok(gaps)
    }
}

/// The request of this record, if it is a measured one; `slot` counts those.
fn measured<'a>(
    record: &RequestRecord,
    requests: &'a [Request],
    slot: &mut usize,
) -> Option<&'a Request> {
    if record.phase != Phase::Measured {
        return None;
    }
    let request = requests.get(*slot);
    *slot += 1;
    request
}

fn add(request: &mut Request, gap: u64, tokens: u32, stall: bool) {
    let sums = &mut request.gaps;
    sums.all_ns = sums.all_ns.saturating_add(gap);
    sums.all_tokens += u64::from(tokens);
    if stall {
        sums.stall_ns = sums.stall_ns.saturating_add(gap);
        sums.stall_tokens += u64::from(tokens);
        sums.stalls += 1;
    }
}

impl Gaps {
    fn class(&mut self, gap: u64, tokens: u32, stall: bool, interfered: bool) {
        let [normal, stalled] = &mut self.classes;
        let row = if stall { stalled } else { normal };
        let [clean, hit] = row;
        *(if interfered { hit } else { clean }) += 1;
        if stall {
            self.shortest_stall = Some(self.shortest_stall.map_or(gap, |s| s.min(gap)));
        } else {
            self.longest_normal = Some(self.longest_normal.map_or(gap, |l| l.max(gap)));
        }
        if !interfered {
            self.clean_ns += u128::from(gap);
            self.clean_tokens += u64::from(tokens);
        }
    }
}

/// Most tokens in any window `[t, t + 1 s)`, from words in order of time.
fn peak(words: &[u64], packing: Packing) -> u64 {
    let (mut most, mut inside) = (0, 0);
    let mut oldest = words.iter().copied().peekable();
    for &word in words {
        inside += Packing::tokens(word);
        let now = packing.ns(word);
        while let Some(old) = oldest.next_if(|&old| packing.ns(old) + SECOND <= now) {
            inside -= Packing::tokens(old);
        }
        most = most.max(inside);
    }
    most
}

/// One sample a token: the gap divided by the tokens it brought.
fn token_time(words: &mut [u64], packing: Packing, percentiles: &[f64]) -> Option<Distribution> {
    if words.iter().any(|&word| Packing::tokens(word) > 1) {
        // Sorted by gap already, which is the same order where every read brought one token.
        words.sort_unstable_by(|&a, &b| {
            let cross =
                |x: u64, y: u64| u128::from(packing.ns(x)) * u128::from(Packing::tokens(y).max(1));
            cross(a, b).cmp(&cross(b, a)).then(a.cmp(&b))
        });
    }
    let sample = |&word: &u64| {
        let tokens = Packing::tokens(word);
        (millis(packing.ns(word)) / tokens.max(1) as f64, tokens)
    };
    Distribution::of_sorted(|| words.iter().map(sample), percentiles)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packing_is_exact_for_hours_and_coarse_beyond() {
        let hour = 3600 * SECOND;
        let packing = Packing::for_span(4 * hour);
        let word = packing.pack(4 * hour - 1, 7);
        assert_eq!((packing.ns(word), Packing::tokens(word)), (4 * hour - 1, 7));
        let packing = Packing::for_span(u64::MAX);
        let word = packing.pack(u64::MAX, u32::MAX);
        assert_eq!(packing.ns(word) >> 20, u64::MAX >> 20);
        assert_eq!(Packing::tokens(word), TOKEN_MASK);
    }

    proptest! {
        #[test]
        fn the_sliding_peak_is_the_brute_force_peak(
            reads in prop::collection::vec((0..3_000_u64, 1..5_u32), 1..80),
        ) {
            let packing = Packing::for_span(3 * SECOND);
            let mut words: Vec<u64> =
                reads.iter().map(|&(ms, k)| packing.pack(ms * 1_000_000, k)).collect();
            words.sort_unstable();
            let expected = reads
                .iter()
                .map(|&(from, _)| {
                    let inside = reads.iter().filter(|r| from <= r.0 && r.0 < from + 1_000);
                    inside.map(|r| u64::from(r.1)).sum::<u64>()
                })
                .max();
            prop_assert_eq!(Some(peak(&words, packing)), expected);
        }

        #[test]
        fn token_times_come_out_in_order(
            reads in prop::collection::vec((0..1_000_000_u64, 0..9_u32), 1..60),
        ) {
            let packing = Packing::for_span(1_000_000);
            let mut words: Vec<u64> = reads.iter().map(|&(ns, k)| packing.pack(ns, k)).collect();
            words.sort_unstable();
            let times = token_time(&mut words, packing, &[]);
            let mut expected: Vec<f64> = reads
                .iter()
                .flat_map(|&(ns, k)| (0..k).map(move |_| millis(ns) / f64::from(k)))
                .collect();
            expected.sort_by(f64::total_cmp);
            prop_assert_eq!(times.map(|d| (d.count, d.min, d.max)), expected.first().map(|&min| {
                (expected.len() as u64, min, expected[expected.len() - 1])
            }));
        }
    }
}
