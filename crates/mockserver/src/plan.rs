//! Which tokens a request gets in which step: the truth, without a clock.

use std::rc::Rc;

/// The steps of one request.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    total: u64,
    emitted: u64,
    first: u64,
    cycle: Rc<[u64]>,
    at: usize,
    started: bool,
    /// A step without tokens follows the last one: a fault that happens one step after the last token.
    tail: bool,
    stall: Option<(u64, u64)>,
}

/// Tokens that a step delivers, and whether it is the request's last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) count: u64,
    pub(crate) last: bool,
}

impl Plan {
    /// `total` tokens: `first` in the first step, then sizes that go round `cycle`.
    pub(crate) fn new(total: u64, first: u64, cycle: Rc<[u64]>) -> Self {
        Plan {
            total,
            emitted: 0,
            first,
            cycle,
            at: 0,
            started: false,
            tail: false,
            stall: None,
        }
    }

    /// Adds a step without tokens at the end.
    pub(crate) fn with_tail(mut self) -> Self {
        self.tail = true;
        self
    }

    /// Pauses `ns` before the step that delivers token number `at_token` (from 1).
    pub(crate) fn with_stall(mut self, at_token: u64, ns: u64) -> Self {
        self.stall = Some((at_token, ns));
        self
    }

    fn next_size(&self) -> u64 {
        let size = match (self.started, self.cycle.get(self.at)) {
            (true, Some(size)) => *size,
            _ => self.first,
        };
        size.min(self.total - self.emitted)
    }

    /// How long the coming step has to wait, in ns. Said once.
    pub(crate) fn take_stall(&mut self) -> u64 {
        match self.stall {
            Some((at_token, ns)) if self.emitted + self.next_size() >= at_token => {
                self.stall = None;
                ns
            }
            _ => 0,
        }
    }

    /// The coming step.
    pub(crate) fn step(&mut self) -> Tokens {
        let tail_now = self.tail && self.emitted == self.total;
        let count = self.next_size();
        if self.started {
            self.at = (self.at + 1) % self.cycle.len().max(1);
        }
        self.started = true;
        self.emitted += count;
        Tokens {
            count,
            last: tail_now || (self.emitted == self.total && !self.tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(mut plan: Plan) -> Vec<u64> {
        let mut sizes = Vec::new();
        loop {
            let step = plan.step();
            sizes.push(step.count);
            if step.last {
                return sizes;
            }
        }
    }

    #[test]
    fn cycle_starts_after_the_first_chunk_and_the_last_is_cut() {
        assert_eq!(sizes(Plan::new(12, 1, [3, 4, 4, 2].into())), [1, 3, 4, 4]);
        assert_eq!(
            sizes(Plan::new(16, 1, [3, 4, 4, 2].into())),
            [1, 3, 4, 4, 2, 2]
        );
        assert_eq!(sizes(Plan::new(3, 5, [1].into())), [3]);
        assert_eq!(sizes(Plan::new(0, 1, [1].into())), [0]);
        assert_eq!(sizes(Plan::new(2, 1, [1].into()).with_tail()), [1, 1, 0]);
        assert_eq!(sizes(Plan::new(0, 1, [1].into()).with_tail()), [0]);
    }

    #[test]
    fn stall_is_said_once_before_the_step_that_holds_the_token() {
        let mut plan = Plan::new(10, 1, [3].into()).with_stall(4, 7);
        let stalls: Vec<u64> = (0..4)
            .map(|_| {
                let s = plan.take_stall();
                plan.step();
                s
            })
            .collect();
        assert_eq!(stalls, [0, 7, 0, 0]);
    }

    proptest! {
        #[test]
        fn steps_sum_to_the_total(total in 0u64..500, first in 1u64..9, cycle in prop::collection::vec(1u64..9, 1..5), tail: bool) {
            let plan = Plan::new(total, first, cycle.into());
            let plan = if tail { plan.with_tail() } else { plan };
            let got = sizes(plan);
            prop_assert_eq!(got.iter().sum::<u64>(), total);
            prop_assert_eq!(got.iter().filter(|n| **n == 0).count(), usize::from(tail || total == 0));
        }
    }
}
