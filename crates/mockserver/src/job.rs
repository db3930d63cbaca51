//! A generation request, decided: what will be answered and when.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::body::GenRequest;
use crate::clock::ms_to_ns;
use crate::config::{MockConfig, Mode};
use crate::engine::{Step, Ticket};
use crate::fault::{Fault, FaultKind, selected};
use crate::flight::Flight;
use crate::plan::Plan;
use crate::prefix::mix;
use crate::prompt::{PromptTokens, VOCABULARY};
use crate::server::Server;

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
    Abort,
    Error,
}

impl Finish {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Abort => "abort",
            Finish::Error => "error",
        }
    }
}

/// Where a request's steps come from.
pub(crate) enum Source {
    Timed {
        next: u64,
        step_ns: u64,
        plan: Plan,
        cached: u64,
    },
    Engine(Ticket),
}

impl Source {
    /// When the coming step is due, if that is known.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self {
            Source::Timed { next, .. } => Some(*next),
            Source::Engine(_) => None,
        }
    }

    /// The coming step, once it is due. The caller sees to the wake-up at [`Source::deadline`].
    pub(crate) fn poll_step(&mut self, now: u64, cx: &Context<'_>) -> Poll<Step> {
        match self {
            Source::Timed {
                next,
                step_ns,
                plan,
                ..
            } => {
                let due = *next;
                if now < due {
                    return Poll::Pending;
                }
                let tokens = plan.step();
                *next = due + *step_ns + plan.take_stall();
                Poll::Ready(Step {
                    due,
                    tokens: tokens.count,
                    last: tokens.last,
                })
            }
            Source::Engine(ticket) => ticket.poll_step(cx),
        }
    }

    /// Prompt tokens that the prefix cache held.
    pub(crate) fn cached(&self) -> u64 {
        match self {
            Source::Timed { cached, .. } => *cached,
            Source::Engine(ticket) => ticket.cached(),
        }
    }
}

pub(crate) struct Job {
    pub(crate) chat: bool,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) prompts: Rc<[PromptTokens]>,
    pub(crate) prompt_tokens: u64,
    pub(crate) source: Source,
    pub(crate) finish: Finish,
    /// The last token is the end-of-sequence token, which has no text.
    pub(crate) eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) token_ids: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) arrival: u64,
    pub(crate) flight: Flight,
    /// Mixed into the made-up token ids, so that answers differ.
    seed: u64,
}

impl Job {
    /// Decides the answer to the `number`th request (from 1), whose last byte came at `arrival`.
    pub(crate) fn new(server: &Rc<Server>, request: GenRequest, number: u64, arrival: u64) -> Self {
        let config = &*server.config;
        let fault = config
            .fault
            .iter()
            .find(|f| f.kind != FaultKind::Refuse && f.hits(number))
            .cloned();
        let (total, finish, eos) = length(config, &request, fault.as_ref());
        let mut plan = Plan::new(total, config.first_chunk_tokens, Rc::clone(&server.cycle));
        if fault.as_ref().is_some_and(|f| f.kind.cuts()) {
            plan = plan.with_tail();
        }
        if let Some(stall) = &config.stall
            && selected(number, stall.skip_first, Some(stall.every), &[])
        {
            plan = plan.with_stall(stall.at_token, ms_to_ns(stall.ms));
        }
        let prompts: Rc<[PromptTokens]> = request.prompts.into();
        let prompt_tokens = prompts.iter().map(|p| p.count).sum();
        let source = source(server, &prompts, prompt_tokens, plan, arrival);
        let seed = mix(server.started_ns ^ number);
        let prefix = if request.chat { "chatcmpl" } else { "cmpl" };
        Job {
            chat: request.chat,
            id: format!("{prefix}-{seed:016x}"),
            created: server.unix_seconds(arrival),
            prompts,
            prompt_tokens,
            source,
            finish,
            eos,
            stream: request.stream,
            include_usage: request.include_usage || config.force_include_usage,
            continuous_usage: request.continuous_usage || config.force_include_usage,
            token_ids: request.token_ids,
            fault,
            arrival,
            flight: Flight::begin(server),
            seed,
        }
    }

    /// The made-up id of output token `index` (from 0).
    pub(crate) fn token_id(&self, index: u64) -> u64 {
        mix(self.seed ^ index) % VOCABULARY
    }

    pub(crate) fn fault_kind(&self) -> Option<FaultKind> {
        self.fault.as_ref().map(|f| f.kind)
    }
}

/// How many tokens, the finish reason, and whether the last token is the end of sequence.
fn length(config: &MockConfig, request: &GenRequest, fault: Option<&Fault>) -> (u64, Finish, bool) {
    let natural = match config.eos_after.map(|n| n.max(request.min_tokens)) {
        Some(n) if !request.ignore_eos && n <= request.max_tokens => (n, Finish::Stop, true),
        _ => (request.max_tokens, Finish::Length, false),
    };
    let Some(fault) = fault else {
        return natural;
    };
    let cut = natural.0.min(fault.after_tokens);
    match fault.kind {
        FaultKind::Short => (cut, Finish::Stop, false),
        FaultKind::Abort => (cut, Finish::Abort, false),
        FaultKind::NoOutput => (0, Finish::Stop, false),
        kind if kind.cuts() => (cut, Finish::Error, false),
        _ => natural,
    }
}

fn source(
    server: &Server,
    prompts: &Rc<[PromptTokens]>,
    prompt_tokens: u64,
    mut plan: Plan,
    arrival: u64,
) -> Source {
    let config = &*server.config;
    match (config.mode, &server.engine) {
        (Mode::Engine, Some(engine)) => {
            Source::Engine(engine.submit(arrival, Rc::clone(prompts), plan))
        }
        _ => {
            let cached = server.books.admit(prompts, arrival, arrival);
            let computed = prompt_tokens.saturating_sub(cached) as f64;
            let prefill = (computed * config.prefill_us_per_token * 1e3).round() as u64;
            let wait = ms_to_ns(config.ttft_ms) + prefill + plan.take_stall();
            Source::Timed {
                next: arrival + wait,
                step_ns: ms_to_ns(config.step_ms),
                plan,
                cached,
            }
        }
    }
}
