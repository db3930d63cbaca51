use linktax_records::{EventClass, FailureDetail, Nanos, Reads, TokenSource, Usage};

use crate::chunk::Chunk;
use crate::classify::{Parts, digest};
use crate::outcome::{error_frame, failure};
use crate::tokens::TokenCounter;
use crate::{DecodeOptions, Endpoint};

/// The socket read in progress; it becomes an entry of [`Reads`] if it completes an event.
#[derive(Debug)]
struct Current {
    seq: u64,
    t: Nanos,
    tokens: u32,
    class: EventClass,
    events: u32,
    /// The first send stamp in it: the event that waited longest.
    stamp: Option<u64>,
}

/// All that is known of a response so far.
#[derive(Debug)]
pub(crate) struct State {
    options: DecodeOptions,
    pub(crate) origin: Option<Nanos>,
    pub(crate) counter: TokenCounter,
    pub(crate) reads: Reads,
    current: Option<Current>,
    /// Bytes of the current read and of those before it that completed no event.
    bytes: u64,
    /// Data events so far.
    events: u64,
    pub(crate) counted: u64,
    pub(crate) socket_reads: u32,
    pub(crate) keepalives: u32,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish_reason: Option<String>,
    pub(crate) done_marker: bool,
    pub(crate) error: Option<FailureDetail>,
    pub(crate) malformed: Option<FailureDetail>,
    pub(crate) text: Option<String>,
    pub(crate) delivery_lag_ns: Vec<u64>,
}

impl State {
    pub(crate) fn new(options: DecodeOptions) -> Self {
        State {
            options,
            origin: None,
            counter: TokenCounter::default(),
            reads: Reads::default(),
            current: None,
            bytes: 0,
            events: 0,
            counted: 0,
            socket_reads: 0,
            keepalives: 0,
            usage: None,
            finish_reason: None,
            done_marker: false,
            error: None,
            malformed: None,
            text: options.keep_text.then(String::new),
            delivery_lag_ns: Vec::new(),
        }
    }

    pub(crate) fn begin_read(&mut self, t: Nanos, seq: u64, bytes: usize) {
        if self.current.as_ref().is_none_or(|c| c.seq != seq) {
            self.end_read();
            self.socket_reads = self.socket_reads.saturating_add(1);
            self.current = Some(Current {
                seq,
                t,
                tokens: 0,
                class: EventClass::Empty,
                events: 0,
                stamp: None,
            });
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Closes the current read. Without an event it leaves its bytes to the next one.
    pub(crate) fn end_read(&mut self) {
        let Some(read) = self.current.take().filter(|r| r.events > 0) else {
            return;
        };
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        self.bytes = 0;
        self.reads
            .push(read.t, read.tokens, read.class, bytes, read.events);
        if let (true, Some(origin), Some(stamp)) = (read.tokens > 0, self.origin, read.stamp) {
            let arrived = (origin + read.t).as_nanos();
            self.delivery_lag_ns.push(arrived.saturating_sub(stamp));
        }
    }

    pub(crate) fn on_event(&mut self, event: &str, data: &str) {
        self.events += 1;
        let (class, tokens, stamp) = self.take(event, data);
        self.counted = self.counted.saturating_add(u64::from(tokens));
        if let Some(read) = &mut self.current {
            read.class = read.class.max(class);
            read.tokens = read.tokens.saturating_add(tokens);
            read.events = read.events.saturating_add(1);
            if tokens > 0 && read.stamp.is_none() {
                read.stamp = stamp;
            }
        }
    }

    /// Takes in one event; its class, its tokens and its send stamp.
    fn take(&mut self, event: &str, data: &str) -> (EventClass, u32, Option<u64>) {
        const NOTHING: (EventClass, u32, Option<u64>) = (EventClass::Empty, 0, None);
        if event == "error" {
            self.on_error(data);
            return (EventClass::Error, 0, None);
        }
        match data.trim() {
            "[DONE]" => {
                self.done_marker = true;
                return (EventClass::Done, 0, None);
            }
            // Some servers keep a connection alive with empty data in place of a comment.
            "" => return NOTHING,
            _ => {}
        }
        let chunk = match Chunk::parse(data) {
            Ok(chunk) => chunk,
            Err(reason) => {
                let message = format!("event {} is not a chunk: {reason}", self.events);
                self.on_malformed(message, Some(data));
                return NOTHING;
            }
        };
        if chunk.is_error() {
            self.on_error(data);
            return (EventClass::Error, 0, None);
        }
        self.on_chunk(&chunk, data)
    }

    fn on_chunk(&mut self, chunk: &Chunk<'_>, data: &str) -> (EventClass, u32, Option<u64>) {
        let (mut class, signals) = digest(chunk, self.options.endpoint);
        let tokens = self.counter.count(&signals);
        // A role that comes again beside later text says nothing new.
        if class == EventClass::Role && self.counted > 0 {
            class = EventClass::Empty;
        }
        // A usage beside text that is empty is news, unless a usage is there every time.
        let running = matches!(
            self.counter.chosen(),
            None | Some(TokenSource::ContinuousUsage)
        );
        if class == EventClass::Empty && signals.usage.is_some() && !running {
            class = EventClass::Usage;
        }
        if let Some(usage) = chunk.usage.as_ref().and_then(|u| u.to_record()) {
            self.usage = Some(usage);
        }
        let mut stamp = None;
        for choice in chunk.choices.as_deref().unwrap_or_default() {
            if let Some(reason) = &choice.finish_reason {
                self.on_finish_reason(&reason.0, data);
            }
            if choice.index.unwrap_or(0) == 0 && (self.text.is_some() || self.options.send_stamps) {
                let parts = Parts::of(choice, self.options.endpoint);
                if let Some(text) = &mut self.text {
                    text.push_str(parts.reasoning);
                    text.push_str(parts.content);
                }
                stamp = stamp.or_else(|| self.stamp(&parts));
            }
        }
        (class, tokens, stamp)
    }

    fn stamp(&self, parts: &Parts<'_>) -> Option<u64> {
        if !self.options.send_stamps {
            return None;
        }
        let text = match parts.content {
            "" => parts.reasoning,
            content => content,
        };
        text.trim().parse().ok()
    }

    fn on_finish_reason(&mut self, reason: &str, data: &str) {
        if self.finish_reason.as_deref() != Some(reason) {
            self.finish_reason = Some(reason.to_owned());
        }
        if matches!(reason, "abort" | "error") && self.error.is_none() {
            let message = format!("the server ended the answer with finish reason {reason:?}");
            self.error = Some(failure(message, Some(data)));
        }
    }

    fn on_error(&mut self, data: &str) {
        // The first error is the cause, later ones are its consequences.
        if self.error.is_none() {
            self.error = Some(error_frame(data));
        }
    }

    pub(crate) fn on_malformed(&mut self, message: String, data: Option<&str>) {
        if self.malformed.is_none() {
            self.malformed = Some(failure(message, data));
        }
    }

    /// Looks at what stood after the last event. A body without any event may be no event stream at all, such
    /// as a JSON error object under status 200.
    pub(crate) fn on_leftover(&mut self, leftover: &[u8]) {
        if self.events > 0 || self.keepalives > 0 {
            return;
        }
        let text = String::from_utf8_lossy(leftover);
        let body = text.trim();
        if !body.starts_with(['{', '[', '<', '"']) {
            return;
        }
        match Chunk::parse(body) {
            Ok(chunk) if chunk.is_error() => self.on_error(body),
            _ => self.on_malformed("the answer is not an event stream".to_owned(), Some(body)),
        }
    }
}

impl Endpoint {
    /// The path under the base URL.
    pub const fn path(self) -> &'static str {
        match self {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        }
    }
}
