//! How many requests were under way at each instant, from exact intervals.

/// Half-open intervals `[start, end)` as sorted edges.
pub(crate) struct InFlight {
    /// `(time, -1 or +1)`; ends sort before starts of the same instant, so a successor never adds up
    /// with the request it replaces.
    edges: Vec<(u64, i8)>,
}

impl InFlight {
    pub(crate) fn of(intervals: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut edges: Vec<(u64, i8)> = intervals
            .filter(|(start, end)| start < end)
            .flat_map(|(start, end)| [(start, 1), (end, -1)])
            .collect();
        edges.sort_unstable();
        InFlight { edges }
    }

    /// `(time, count from then on)` at each edge.
    fn steps(&self) -> impl Iterator<Item = (u64, i64)> + '_ {
        self.edges.iter().scan(0_i64, |count, &(t, change)| {
            *count += i64::from(change);
            Some((t, *count))
        })
    }

    pub(crate) fn peak(&self) -> u64 {
        self.steps()
            .map(|(_, count)| count)
            .max()
            .map_or(0, |peak| peak.unsigned_abs())
    }

    /// Time-averaged count over `[start, end]`.
    pub(crate) fn mean(&self, start: u64, end: u64) -> Option<f64> {
        if end <= start {
            return None;
        }
        let (mut area, mut since, mut count) = (0_u128, start, 0_i64);
        for (t, next) in self.steps() {
            let t = t.clamp(start, end);
            area += u128::from(t - since) * u128::from(count.unsigned_abs());
            (since, count) = (t, next);
        }
        Some(area as f64 / (end - start) as f64)
    }

    /// From the first instant at which `target` were in flight to the last at which at least 95 % of it were.
    pub(crate) fn steady(&self, target: u32) -> Option<(u64, u64)> {
        let target = i64::from(target.max(1));
        let enough = (95 * target + 99) / 100;
        let start = self.steps().find(|&(_, n)| n >= target)?.0;
        let (mut end, mut before) = (start, 0);
        for (t, count) in self.steps() {
            if before >= enough && count < enough {
                end = end.max(t);
            }
            before = count;
        }
        Some((start, end))
    }
}

/// Disjoint, sorted intervals that cover the same instants.
pub(crate) fn union(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.retain(|(start, end)| start < end);
    intervals.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Walks ascending gaps along merged intervals and says which gaps overlap one of them.
pub(crate) struct Overlap<'a> {
    rest: &'a [(u64, u64)],
}

impl<'a> Overlap<'a> {
    /// Starts at `from`: later gaps must not begin before it.
    pub(crate) fn new(merged: &'a [(u64, u64)], from: u64) -> Self {
        let first = merged.partition_point(|&(_, end)| end <= from);
        Overlap {
            rest: merged.get(first..).unwrap_or_default(),
        }
    }

    /// Whether the open interval `(start, end)` shares an instant with one of the intervals.
    pub(crate) fn hits(&mut self, start: u64, end: u64) -> bool {
        while let [(_, until), rest @ ..] = self.rest {
            if *until > start {
                break;
            }
            self.rest = rest;
        }
        start < end && self.rest.first().is_some_and(|&(from, _)| from < end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_successor_does_not_overlap_its_predecessor() {
        let flight = InFlight::of([(0, 10), (10, 20), (0, 5), (5, 5)].into_iter());
        assert_eq!(flight.peak(), 2);
        assert_eq!(flight.mean(0, 20), Some(25.0 / 20.0));
        assert_eq!(flight.mean(5, 15), Some(1.0));
        assert_eq!(flight.mean(7, 7), None);
    }

    #[test]
    fn the_steady_window_runs_from_full_to_the_last_95_percent() {
        // Two at a time from 1 to 30, with a hole at 9..10; ceil(0.95 * 2) = 2.
        let flight = InFlight::of([(0, 9), (1, 20), (10, 30), (20, 40)].into_iter());
        assert_eq!(flight.steady(2), Some((1, 30)));
        assert_eq!(flight.steady(1), Some((0, 40)));
        assert_eq!(flight.steady(3), None);
        // Twenty with one missing still counts as 95 %.
        let wide = InFlight::of((0..20).map(|i| (i, 100 + i)));
        assert_eq!(wide.steady(20), Some((19, 101)));
    }

    #[test]
    fn touching_intervals_merge() {
        let merged = union(vec![(5, 7), (0, 2), (2, 3), (6, 6)]);
        assert_eq!(merged, [(0, 3), (5, 7)]);
        let mut overlap = Overlap::new(&merged, 0);
        assert!(overlap.hits(1, 2));
        assert!(!overlap.hits(3, 5), "open ends only touch");
        assert!(overlap.hits(3, 6));
        assert!(!overlap.hits(6, 6), "an empty gap overlaps nothing");
        assert!(!overlap.hits(7, 9));
    }

    proptest! {
        #[test]
        fn the_walk_agrees_with_comparing_all_pairs(
            intervals in prop::collection::vec((0..200_u64, 0..20_u64), 0..20),
            times in prop::collection::vec(0..250_u64, 2..40),
        ) {
            let intervals: Vec<_> = intervals.into_iter().map(|(s, d)| (s, s + d)).collect();
            let mut times = times;
            times.sort_unstable();
            let merged = union(intervals.clone());
            let mut overlap = Overlap::new(&merged, times[0]);
            for gap in times.windows(2) {
                let (a, b) = (gap[0], gap[1]);
                // Twice the coordinates, so that an open overlap of width 1 has an inner point.
                let expected = (2 * a + 1..2 * b)
                    .any(|x| intervals.iter().any(|&(s, e)| 2 * s < x && x < 2 * e));
                prop_assert_eq!(overlap.hits(a, b), expected, "gap {:?}", (a, b));
            }
        }

        #[test]
        fn the_steady_window_lies_inside_and_the_mean_below_the_peak(
            intervals in prop::collection::vec((0..200_u64, 1..50_u64), 1..40),
            target in 1..8_u32,
        ) {
            let intervals: Vec<_> = intervals.into_iter().map(|(s, d)| (s, s + d)).collect();
            let start = intervals.iter().map(|i| i.0).min().unwrap();
            let end = intervals.iter().map(|i| i.1).max().unwrap();
            let flight = InFlight::of(intervals.into_iter());
            prop_assert!(flight.mean(start, end).unwrap() <= flight.peak() as f64 + 1e-9);
            match flight.steady(target) {
                Some((from, to)) => prop_assert!(start <= from && from <= to && to <= end),
                None => prop_assert!(flight.peak() < u64::from(target)),
            }
        }
    }
}
