//! The shared engine loop of `mode = "engine"`.
//!
//! Steps are planned on nominal times: a step begins where the one before ended, or when a request
//! arrives at an idle engine. Nothing that the host does late moves a later step.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::books::Books;
use crate::clock::{Timers, ms_to_ns, now_ns};
use crate::config::MockConfig;
use crate::plan::Plan;
use crate::prompt::PromptTokens;

/// One step of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// When it ends and its tokens are due, in ns.
    pub(crate) due: u64,
    /// Tokens in it.
    pub(crate) tokens: u64,
    /// Whether it is the request's last.
    pub(crate) last: bool,
}

struct Seq {
    arrival: u64,
    prompts: Rc<[PromptTokens]>,
    plan: RefCell<Plan>,
    prefill_left: Cell<u64>,
    stalled_until: Cell<u64>,
    in_step: Cell<bool>,
    cached: Cell<u64>,
    gone: Cell<bool>,
    steps: RefCell<VecDeque<Step>>,
    waker: RefCell<Option<Waker>>,
}

/// A request's place in the engine. Dropping it takes the request out.
pub(crate) struct Ticket(Rc<Seq>);

impl Ticket {
    pub(crate) fn poll_step(&self, cx: &Context<'_>) -> Poll<Step> {
        if let Some(step) = self.0.steps.borrow_mut().pop_front() {
            return Poll::Ready(step);
        }
        let mut waker = self.0.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Prompt tokens that the prefix cache held; known once it runs.
    pub(crate) fn cached(&self) -> u64 {
        self.0.cached.get()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.gone.set(true);
    }
}

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Rc<Seq>>,
    running: Vec<Rc<Seq>>,
}

pub(crate) struct Engine {
    step_ns: u64,
    prefill_ns: f64,
    max_seqs: usize,
    max_tokens: u64,
    books: Rc<Books>,
    queues: RefCell<Queues>,
    work: Notify,
}

impl Engine {
    pub(crate) fn new(config: &MockConfig, books: Rc<Books>) -> Self {
        let budget = config.max_batched_tokens;
        Engine {
            step_ns: ms_to_ns(config.step_ms),
            prefill_ns: config.prefill_us_per_token * 1e3,
            max_seqs: config.max_num_seqs,
            max_tokens: if budget == 0 { u64::MAX } else { budget },
            books,
            queues: RefCell::default(),
            work: Notify::new(),
        }
    }

    /// Queues a request that arrived at `arrival`.
    pub(crate) fn submit(&self, arrival: u64, prompts: Rc<[PromptTokens]>, plan: Plan) -> Ticket {
        let seq = Rc::new(Seq {
            arrival,
            prompts,
            plan: RefCell::new(plan),
            prefill_left: Cell::new(0),
            stalled_until: Cell::new(0),
            in_step: Cell::new(false),
            cached: Cell::new(0),
            gone: Cell::new(false),
            steps: RefCell::default(),
            waker: RefCell::default(),
        });
        self.queues.borrow_mut().waiting.push_back(Rc::clone(&seq));
        self.work.notify_one();
        Ticket(seq)
    }

    /// Running and waiting requests.
    pub(crate) fn load(&self) -> (u64, u64) {
        let queues = self.queues.borrow();
        let running = queues.running.iter().filter(|s| !s.gone.get()).count();
        let waiting = queues.waiting.iter().filter(|s| !s.gone.get()).count();
        (running as u64, waiting as u64)
    }

    /// Steps for ever.
    pub(crate) async fn run(&self, timers: &Rc<Timers>) -> io::Result<()> {
        let timer = timers.timer();
        let mut at = 0;
        loop {
            match self.begin_step(at) {
                Some(end) => {
                    if now_ns() >= end {
                        self.let_streams_write().await;
                    }
                    timer.sleep_until(end).await?;
                    self.end_step(end);
                    at = end;
                }
                None => self.work.notified().await,
            }
        }
    }

    /// On a late host steps are due back to back. Each one's tokens are still written before the next one ends.
    async fn let_streams_write(&self) {
        // Tokio runs 61 local tasks a turn.
        let turns = 2 + self.queues.borrow().running.len() / 61;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// Schedules the step that begins at `at` or, in an idle engine, when the first waiting request
    /// arrived. Returns its end, or `None` without work.
    fn begin_step(&self, at: u64) -> Option<u64> {
        let mut queues = self.queues.borrow_mut();
        let Queues { waiting, running } = &mut *queues;
        running.retain(|s| !s.gone.get());
        waiting.retain(|s| !s.gone.get());
        let at = match (running.is_empty(), waiting.front()) {
            (false, _) => at,
            (true, Some(first)) => at.max(first.arrival),
            (true, None) => return None,
        };
        let mut budget = self.max_tokens;
        let mut prefill = 0;
        for seq in running.iter() {
            let stalled = at < seq.stalled_until.get();
            seq.in_step.set(budget > 0 && !stalled);
            if seq.in_step.get() {
                prefill += seq.take_prefill(&mut budget);
            }
        }
        while running.len() < self.max_seqs
            && budget > 0
            && let Some(seq) = waiting.pop_front_if(|s| s.arrival <= at)
        {
            let cached = self.books.admit(&seq.prompts, seq.arrival, at);
            let tokens: u64 = seq.prompts.iter().map(|p| p.count).sum();
            seq.cached.set(cached);
            seq.prefill_left.set(tokens.saturating_sub(cached).max(1));
            seq.in_step.set(true);
            prefill += seq.take_prefill(&mut budget);
            running.push(seq);
        }
        let prefill_ns = (prefill as f64 * self.prefill_ns).round() as u64;
        Some(at.saturating_add(self.step_ns).saturating_add(prefill_ns))
    }

    /// Hands out the tokens of the step that ends at `due`.
    fn end_step(&self, due: u64) {
        self.queues.borrow_mut().running.retain(|seq| {
            if !seq.in_step.get() || seq.prefill_left.get() > 0 {
                return true;
            }
            let stall = seq.plan.borrow_mut().take_stall();
            if stall > 0 {
                seq.stalled_until.set(due + stall);
                return true;
            }
            let tokens = seq.plan.borrow_mut().step();
            let step = Step {
                due,
                tokens: tokens.count,
                last: tokens.last,
            };
            seq.steps.borrow_mut().push_back(step);
            if let Some(waker) = seq.waker.borrow_mut().take() {
                waker.wake();
            }
            !tokens.last
        });
    }
}

impl Seq {
    /// Takes its part of the step's token budget; returns how many tokens of prefill that is.
    fn take_prefill(&self, budget: &mut u64) -> u64 {
        let left = self.prefill_left.get();
        if left == 0 {
            *budget -= 1;
            return 0;
        }
        let take = left.min(*budget);
        self.prefill_left.set(left - take);
        *budget -= take;
        take
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    const MS: u64 = 1_000_000;

    fn engine(config: MockConfig) -> Engine {
        let books = Books::new(&config, 0.0);
        Engine::new(&config, Rc::new(books))
    }

    fn config(max_batched_tokens: u64, max_num_seqs: usize) -> MockConfig {
        MockConfig {
            step_ms: 10.0,
            prefill_us_per_token: 100.0,
            prefix_cache: false,
            max_batched_tokens,
            max_num_seqs,
            ..MockConfig::default()
        }
    }

    fn submit(engine: &Engine, arrival_ms: u64, prompt: u64, output: u64) -> Ticket {
        let prompts = [PromptTokens {
            count: prompt,
            ..PromptTokens::default()
        }];
        engine.submit(
            arrival_ms * MS,
            prompts.into(),
            Plan::new(output, 1, [1].into()),
        )
    }

    /// Runs the engine dry and returns when each ticket got its tokens, in ms.
    fn times<const N: usize>(engine: &Engine, tickets: [&Ticket; N]) -> [Vec<u64>; N] {
        let mut at = 0;
        while let Some(end) = engine.begin_step(at) {
            engine.end_step(end);
            at = end;
        }
        let cx = Context::from_waker(Waker::noop());
        tickets.map(|ticket| {
            std::iter::from_fn(|| match ticket.poll_step(&cx) {
                Poll::Ready(step) => Some(step.due / MS),
                Poll::Pending => None,
            })
            .collect()
        })
    }

    #[test]
    fn requests_that_arrive_together_share_every_tick() {
        let engine = engine(config(0, 8));
        let (a, b) = (submit(&engine, 5, 100, 4), submit(&engine, 5, 100, 4));
        // One step of 10 ms with 200 tokens of prefill at 0.1 ms, then plain steps.
        let want = vec![35, 45, 55, 65];
        assert_eq!(times(&engine, [&a, &b]), [want.clone(), want]);
    }

    #[test]
    fn an_unchunked_prefill_stalls_the_others() {
        let engine = engine(config(0, 8));
        let (a, b) = (submit(&engine, 0, 1, 5), submit(&engine, 15, 10_000, 2));
        // b joins the step that begins at 20.1: 10 + 1000 ms.
        let [a, b] = times(&engine, [&a, &b]);
        assert_eq!(a, [10, 20, 1030, 1040, 1050]);
        assert_eq!(b, [1030, 1040]);
    }

    #[test]
    fn a_chunked_prefill_spreads_over_steps() {
        let engine = engine(config(1_001, 8));
        let (a, b) = (submit(&engine, 0, 1, 12), submit(&engine, 15, 10_000, 2));
        let [a, b] = times(&engine, [&a, &b]);
        // Ten steps of 1000 tokens (one of the budget is a's decode): 110 ms each.
        assert_eq!(a[..4], [10, 20, 130, 240]);
        assert_eq!(b, [1120, 1130]);
    }

    #[test]
    fn more_than_max_num_seqs_wait_for_a_place() {
        let engine = engine(config(0, 2));
        let [a, b, c] = [0, 1, 2].map(|_| submit(&engine, 0, 0, 3));
        assert_eq!(engine.load(), (0, 3));
        let end = engine.begin_step(0).unwrap();
        assert_eq!(engine.load(), (2, 1));
        engine.end_step(end);
        drop(b);
        assert_eq!(engine.load(), (1, 1));
        let [a, c] = times(&engine, [&a, &c]);
        assert_eq!((a.len(), c.len()), (3, 3));
        assert_eq!(engine.load(), (0, 0));
    }

    #[test]
    fn a_late_host_does_not_let_a_request_in_before_it_arrived() {
        let engine = engine(config(0, 8));
        let a = submit(&engine, 0, 1, 3);
        let b = submit(&engine, 12, 1, 1);
        // The step that begins at 10.1 is planned after b arrived at 12, if the host is late.
        let [a, b] = times(&engine, [&a, &b]);
        assert_eq!(a, [10, 20, 30]);
        assert_eq!(b, [30]);
    }

    #[test]
    fn a_stalled_request_pauses_alone() {
        let engine = engine(config(0, 8));
        let prompts: Rc<[PromptTokens]> = [PromptTokens::default()].into();
        let plan = Plan::new(4, 1, [1].into()).with_stall(3, 25 * MS);
        let a = engine.submit(0, prompts, plan);
        let b = submit(&engine, 0, 0, 7);
        let [a, b] = times(&engine, [&a, &b]);
        assert_eq!(b, [10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(a, [10, 20, 70, 80]);
    }
}
