//! The stall threshold: a fixed one, or the widest valley between steps and stalls.

use crate::StallGap;

/// A valley counts when its upper edge is at least this many times its lower edge.
pub(crate) const VALLEY_RATIO: f64 = 1.5;
/// A stall is at least this many times the median gap.
const STALL_TO_MEDIAN: f64 = 2.0;
/// At most one gap in this many may be a stall.
const RARE: u64 = 5;

/// Bins an octave: edges of a valley are exact, the median is good to 0.8 %.
const PER_OCTAVE: u64 = 128;
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();
const BINS: usize = (PER_OCTAVE as usize) * (65 - OCTAVE_BITS as usize);

#[derive(Clone, Copy)]
struct Bin {
    count: u64,
    min: u64,
    max: u64,
}

/// A log histogram of positive gaps that remembers the extremes of each bin.
///
/// A valley as wide as [`VALLEY_RATIO`] spans whole empty bins, so its edges come out exactly, without
/// sorting the gaps and before they are read a second time.
pub(crate) struct GapHistogram {
    bins: Vec<Bin>,
    count: u64,
}

impl GapHistogram {
    pub(crate) fn new() -> Self {
        let empty = Bin {
            count: 0,
            min: u64::MAX,
            max: 0,
        };
        GapHistogram {
            bins: vec![empty; BINS],
            count: 0,
        }
    }

    /// Counts a gap. Zero gaps are left out: two reads at one instant say nothing about the step time.
    pub(crate) fn add(&mut self, gap: u64) {
        if gap == 0 {
            return;
        }
        if let Some(bin) = self.bins.get_mut(bin_of(gap)) {
            bin.count += 1;
            bin.min = bin.min.min(gap);
            bin.max = bin.max.max(gap);
            self.count += 1;
        }
    }

    fn filled(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|bin| bin.count > 0)
    }

    fn median(&self) -> Option<f64> {
        let mut below = 0;
        self.filled()
            .find(|bin| {
                below += bin.count;
                2 * below >= self.count
            })
            .map(|bin| (bin.min as f64 + bin.max as f64) / 2.0)
    }

    /// `(lower edge, upper edge)` of the widest valley that can separate stalls from steps.
    fn widest_valley(&self) -> Option<(u64, u64)> {
        let median = self.median()?;
        let mut best: Option<(u64, u64)> = None;
        let (mut below, mut lower) = (0, 0);
        for bin in self.filled() {
            let above = self.count - below;
            // "Rare" implies that the lower edge is not below the median.
            let candidate = lower > 0
                && above * RARE <= self.count
                && bin.min as f64 >= STALL_TO_MEDIAN * median
                && bin.min as f64 >= VALLEY_RATIO * lower as f64;
            let wider = best
                .is_none_or(|(low, high)| bin.min as f64 / lower as f64 > high as f64 / low as f64);
            if candidate && wider {
                best = Some((lower, bin.min));
            }
            below += bin.count;
            lower = bin.max;
        }
        best
    }
}

fn bin_of(gap: u64) -> usize {
    let octave = u64::from(63 - gap.max(1).leading_zeros());
    let bits = u64::from(OCTAVE_BITS);
    let bin = if octave < bits {
        gap
    } else {
        let shift = octave - bits;
        (shift + 1) * PER_OCTAVE + ((gap >> shift) & (PER_OCTAVE - 1))
    };
    bin as usize
}

/// Whether the gaps fall into steps and stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separability {
    /// The shortest stall is at least 1.5 times the longest normal gap.
    Separable,
    /// There are long gaps, but no clear line between them and the normal ones.
    NotSeparable,
    /// No gap is long enough to be a stall.
    NoStalls,
}

impl Separability {
    /// The word used in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Separability::Separable => "separable",
            Separability::NotSeparable => "not_separable",
            Separability::NoStalls => "no_stalls",
        }
    }
}

/// What was decided about the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// Longer gaps are stalls.
    Above(u64),
    /// `auto` found no gap that could be a stall.
    NoneNeeded,
    /// `auto` found long gaps and no line to draw.
    NoneFound,
    /// Switched off.
    Off,
}

impl Threshold {
    pub(crate) fn choose(stall: StallGap, gaps: &GapHistogram) -> Self {
        match stall {
            StallGap::Fixed(gap) => Threshold::Above(gap.as_nanos()),
            StallGap::Off => Threshold::Off,
            StallGap::Auto => match (gaps.widest_valley(), gaps.median()) {
                (Some((low, high)), _) => Threshold::Above(middle(low, high)),
                (None, Some(median)) => {
                    let longest = gaps.filled().last().map_or(0, |bin| bin.max);
                    if longest as f64 >= STALL_TO_MEDIAN * median {
                        Threshold::NoneFound
                    } else {
                        Threshold::NoneNeeded
                    }
                }
                (None, None) => Threshold::NoneNeeded,
            },
        }
    }

    /// The threshold itself.
    pub(crate) fn ns(self) -> Option<u64> {
        match self {
            Threshold::Above(ns) => Some(ns),
            _ => None,
        }
    }

    pub(crate) fn is_stall(self, gap: u64) -> bool {
        self.ns().is_some_and(|threshold| gap > threshold)
    }
}

/// The geometric middle, kept inside `[low, high)` so that the same gaps are stalls.
fn middle(low: u64, high: u64) -> u64 {
    let middle = (low as f64).sqrt() * (high as f64).sqrt();
    (middle as u64).clamp(low, high.max(low + 1) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn auto(gaps: &[u64]) -> Threshold {
        let mut histogram = GapHistogram::new();
        gaps.iter().for_each(|&gap| histogram.add(gap));
        Threshold::choose(StallGap::Auto, &histogram)
    }

    fn steps(n: u64, ms: u64) -> Vec<u64> {
        (0..n).map(|i| ms * 1_000_000 + i * 1_000).collect()
    }

    #[test]
    fn bins_are_ordered_and_in_range() {
        let edges = [
            0,
            1,
            127,
            128,
            129,
            255,
            256,
            1 << 20,
            u64::MAX / 2,
            u64::MAX,
        ];
        assert!(edges.iter().map(|&gap| bin_of(gap)).is_sorted());
        assert_eq!(bin_of(u64::MAX), BINS - 1);
        assert_ne!(bin_of(1_000_000), bin_of(1_010_000));
    }

    #[test]
    fn the_widest_valley_separates_steps_from_stalls() {
        let mut gaps = steps(200, 16);
        gaps.extend([2_700_000_000, 530_000_000, 900_000_000]);
        let Threshold::Above(threshold) = auto(&gaps) else {
            panic!("no threshold");
        };
        assert!((16_199_000..530_000_000).contains(&threshold));
    }

    #[test]
    fn without_a_clear_line_nothing_is_chosen() {
        // Prefill chunks that last 1 to 7 steps, a continuum.
        let gaps: Vec<u64> = (0..400).map(|i| 10_000_000 + i * i * 400).collect();
        assert_eq!(auto(&gaps), Threshold::NoneFound);
        // Too many of them to be called rare.
        let mut often = steps(60, 16);
        often.extend(steps(40, 500));
        assert_eq!(auto(&often), Threshold::NoneFound);
        // Steady steps.
        assert_eq!(auto(&steps(500, 16)), Threshold::NoneNeeded);
        // Clear, but below twice the median.
        let mut close = steps(200, 16);
        close.push(27_000_000);
        assert_eq!(auto(&close), Threshold::NoneNeeded);
        assert_eq!(auto(&[]), Threshold::NoneNeeded);
    }

    #[test]
    fn zero_gaps_do_not_move_the_threshold() {
        let mut gaps = steps(100, 16);
        gaps.push(2_700_000_000);
        let without = auto(&gaps);
        gaps.extend(vec![0; 500]);
        assert_eq!(auto(&gaps), without);
        assert_eq!(auto(&[0, 0, 0]), Threshold::NoneNeeded);
    }

    proptest! {
        /// The histogram finds the valley that sorting all gaps finds.
        #[test]
        fn the_histogram_agrees_with_a_full_sort(
            low in prop::collection::vec(5_000_000..20_000_000_u64, 50..200),
            high in prop::collection::vec(100_000_000..3_000_000_000_u64, 1..10),
        ) {
            let mut gaps = [low, high].concat();
            gaps.sort_unstable();
            let widest = gaps
                .windows(2)
                .enumerate()
                .filter(|(i, w)| {
                    let above = gaps.len() - i - 1;
                    above * 5 <= gaps.len() && w[1] as f64 >= 1.5 * w[0] as f64
                })
                .map(|(_, w)| (w[0], w[1]))
                .fold((1, 1), |best: (u64, u64), w| {
                    if w.1 as f64 / w.0 as f64 > best.1 as f64 / best.0 as f64 { w } else { best }
                });
            let Threshold::Above(threshold) = auto(&gaps) else {
                return Err(TestCaseError::fail("no threshold"));
            };
            prop_assert!(widest.0 <= threshold && threshold < widest.1);
        }
    }
}
