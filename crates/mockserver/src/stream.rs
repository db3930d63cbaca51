//! A streamed answer: one event, one HTTP chunk, one write.

use std::rc::Rc;

use crate::chunk::{Chunks, Details, Piece, Usage};
use crate::clock::{ms_to_ns, now_ns};
use crate::config::{MockConfig, RoleChunk, UsagePlacement};
use crate::conn::{Conn, Gone, Wake};
use crate::engine::Step;
use crate::fault::FaultKind;
use crate::framing::{Framing, LAST_CHUNK, http_chunk};
use crate::generate::{ENGINE_DIED, End};
use crate::http::response_head;
use crate::job::Job;
use crate::server::Server;
use crate::stats::count;
use crate::text::Words;

struct Stream<'a> {
    conn: &'a mut Conn,
    server: Rc<Server>,
    job: Job,
    chunks: Chunks,
    framing: Framing,
    words: Words,
    keep: bool,
    head_sent: bool,
    role_sent: bool,
    /// Chunks with tokens so far.
    pieces: u64,
    /// Tokens sent.
    sent: u64,
    /// Tokens generated but held back by `stream_interval`.
    held: u64,
    /// The padded event is still to come.
    pad: usize,
    /// The malformed event is still to come.
    spoil: bool,
    last_write: u64,
    last_step: Option<u64>,
    // Buffers, kept from event to event.
    json: Vec<u8>,
    event: Vec<u8>,
    out: Vec<u8>,
}

/// Streams the answer to its end or its fault.
pub(crate) async fn run(conn: &mut Conn, job: Job, keep: bool) -> Result<End, Gone> {
    let server = Rc::clone(&conn.server);
    let config = &server.config;
    let mut stream = Stream {
        chunks: Chunks::new(
            &job,
            &config.model,
            config.reasoning_field,
            config.role_content_null,
        ),
        framing: Framing::new(config),
        words: Words::new(config.stamp),
        keep,
        head_sent: false,
        role_sent: !job.chat || config.role_chunk == RoleChunk::None,
        pieces: 0,
        sent: 0,
        held: 0,
        pad: config.pad_event_bytes,
        spoil: job.fault_kind() == Some(FaultKind::BadJson),
        last_write: now_ns(),
        last_step: None,
        json: Vec::with_capacity(512),
        event: Vec::with_capacity(512),
        out: Vec::with_capacity(1024),
        server: Rc::clone(&server),
        conn,
        job,
    };
    stream.run(config).await
}

impl Stream<'_> {
    async fn run(&mut self, config: &MockConfig) -> Result<End, Gone> {
        if !config.headers_with_first_token {
            self.send_head().await?;
        }
        if config.role_chunk == RoleChunk::Immediate {
            self.send_role().await?;
        }
        let keepalive = ms_to_ns(config.keepalive_ms);
        loop {
            let quiet = (keepalive > 0).then(|| self.last_write + keepalive);
            match self.conn.next(&mut self.job.source, quiet).await? {
                Wake::Quiet => self.send_comment().await?,
                Wake::Step(step) => {
                    self.note(step);
                    if step.last && self.job.fault_kind().is_some_and(FaultKind::cuts) {
                        return self.fail().await;
                    }
                    self.take(step, config).await?;
                    if step.last {
                        return self.finish(config).await;
                    }
                }
            }
        }
    }

    /// Counts a step for `/metrics`.
    fn note(&mut self, step: Step) {
        let mut metrics = self.server.books.metrics.borrow_mut();
        let tokens = step.tokens * self.job.prompts.len() as u64;
        metrics.generation_tokens += tokens;
        self.server.stats.tokens(tokens);
        if step.tokens > 0 {
            match self.last_step {
                None => metrics
                    .ttft
                    .observe(step.due.saturating_sub(self.job.arrival)),
                Some(last) => {
                    metrics.itl.observe(step.due.saturating_sub(last));
                    metrics.draft(step.tokens, self.server.most_per_step);
                }
            }
            self.last_step = Some(step.due);
        }
        if step.last {
            metrics
                .e2e
                .observe(step.due.saturating_sub(self.job.arrival));
        }
    }

    /// Sends a step's tokens, or holds them back.
    async fn take(&mut self, step: Step, config: &MockConfig) -> Result<(), Gone> {
        if !self.head_sent {
            self.send_head().await?;
        }
        if !self.role_sent {
            self.send_role().await?;
        }
        if self.spoil
            && self.sent + self.held >= self.job.fault.as_ref().map_or(0, |f| f.after_tokens)
        {
            self.send_spoilt().await?;
        }
        self.held += step.tokens;
        let due = self.pieces == 0 || self.held >= config.stream_interval || step.last;
        if due {
            self.send_tokens(step.last, config).await?;
        }
        Ok(())
    }

    async fn send_tokens(&mut self, last: bool, config: &MockConfig) -> Result<(), Gone> {
        // Usage in a chunk of its own with the finish reason: then no other chunk has that.
        let finish_apart = config.usage == UsagePlacement::InChoicesChunk;
        let (from, to) = (self.sent, self.sent + self.held);
        self.sent = to;
        self.held = 0;
        let silent_last = u64::from(last && self.job.eos);
        let reasoning = if self.job.chat {
            config.reasoning_tokens
        } else {
            0
        };
        let thought = to.min(reasoning).saturating_sub(from);
        // What is left has text, but for the end-of-sequence token.
        let spoken = (to - from) - thought;
        let worded = spoken.saturating_sub(silent_last);
        let usage = self.continuous(config);
        let finish = (last && !finish_apart).then_some(self.job.finish);
        // With several prompts, each has its own choice and they advance together.
        let choices = if to == from && finish.is_none() {
            0
        } else {
            self.job.prompts.len()
        };
        // Not the first event, whose time counts most, unless there is no other.
        let padding = if self.pieces == 1 || last {
            std::mem::take(&mut self.pad)
        } else {
            0
        };
        for index in 0..choices {
            self.words.next(from, thought, worded);
            let piece = Piece {
                index,
                reasoning: (thought > 0).then(|| self.words.reasoning()),
                content: (spoken > 0 || thought == 0).then(|| self.words.content()),
                finish,
                tokens: (from, to),
                first: self.pieces == 0,
                usage,
                fingerprint: finish.is_some() && !self.sends_usage_chunk(config),
                padding,
            };
            self.json.clear();
            self.chunks.piece(&self.job, &piece, &mut self.json);
            self.send_json(None).await?;
        }
        self.pieces += 1;
        if last && finish_apart {
            self.send_finish_with_usage(config).await?;
        }
        Ok(())
    }

    /// The extra chunk of [`UsagePlacement::InChoicesChunk`].
    async fn send_finish_with_usage(&mut self, config: &MockConfig) -> Result<(), Gone> {
        for index in 0..self.job.prompts.len() {
            let piece = Piece {
                index,
                reasoning: None,
                content: (!self.job.chat).then_some(""),
                finish: Some(self.job.finish),
                tokens: (self.sent, self.sent),
                first: false,
                usage: Some(self.counts(config, true)),
                fingerprint: true,
                padding: 0,
            };
            self.json.clear();
            self.chunks.piece(&self.job, &piece, &mut self.json);
            self.send_json(None).await?;
        }
        Ok(())
    }

    /// Whether a chunk with nothing but usage ends the stream.
    fn sends_usage_chunk(&self, config: &MockConfig) -> bool {
        self.job.include_usage
            && !matches!(
                config.usage,
                UsagePlacement::None | UsagePlacement::InChoicesChunk
            )
    }

    /// The counts so far; the last ones of a stream carry more detail.
    fn counts(&self, config: &MockConfig, at_end: bool) -> Usage {
        let reasons = self.job.chat && config.reasoning_tokens > 0;
        let choices = self.job.prompts.len() as u64;
        Usage {
            prompt: self.job.prompt_tokens,
            completion: self.sent * choices,
            cached: (at_end && config.prompt_tokens_details).then(|| self.job.source.cached()),
            details: if reasons {
                Details::Reasoning(self.sent.min(config.reasoning_tokens))
            } else if self.job.chat && !at_end {
                Details::Null
            } else {
                Details::Absent
            },
        }
    }

    /// Usage for a chunk with choices, if it carries any.
    fn continuous(&self, config: &MockConfig) -> Option<Usage> {
        let carries = match config.usage {
            UsagePlacement::EveryChunk => true,
            UsagePlacement::None => false,
            _ => self.job.continuous_usage,
        };
        carries.then(|| self.counts(config, false))
    }

    async fn finish(&mut self, config: &MockConfig) -> Result<End, Gone> {
        if self.sends_usage_chunk(config) {
            self.json.clear();
            let counts = self.counts(config, true);
            self.chunks.usage_only(config.usage, counts, &mut self.json);
            self.send_json(None).await?;
        }
        self.send_done().await?;
        self.send_last_chunk().await
    }

    /// What a fault does in place of the rest.
    async fn fail(&mut self) -> Result<End, Gone> {
        if !self.head_sent {
            self.send_head().await?;
        }
        let kind = self.job.fault_kind();
        match kind {
            Some(FaultKind::ErrorFrame | FaultKind::ErrorEvent) => {
                let name = (kind == Some(FaultKind::ErrorEvent)).then_some("error");
                // With spaces, as vLLM's error frames have them.
                self.json = format!(
                    r#"{{"error": {{"message": "{ENGINE_DIED}", "type": "InternalServerError", "param": null, "code": 500}}}}"#
                )
                .into_bytes();
                self.send_json(name).await?;
                self.send_done().await?;
                self.send_last_chunk().await
            }
            Some(FaultKind::Truncate) => self.send_last_chunk().await,
            Some(FaultKind::Hang) => {
                self.conn.until_gone().await;
                self.job.flight.end(self.job.finish);
                Ok(End::Cut)
            }
            _ => {
                if kind == Some(FaultKind::Reset) {
                    self.conn.reset();
                }
                self.job.flight.end(self.job.finish);
                Ok(End::Cut)
            }
        }
    }

    async fn send_spoilt(&mut self) -> Result<(), Gone> {
        self.spoil = false;
        let fault = self.job.fault.as_ref();
        self.json = match fault.and_then(|f| f.body.as_ref()) {
            Some(body) => body.clone().into_bytes(),
            None => format!(r#"{{"id":"{}","choices":[{{"index":0,"te"#, self.job.id).into_bytes(),
        };
        self.send_json(None).await
    }

    async fn send_head(&mut self) -> Result<(), Gone> {
        self.head_sent = true;
        self.out.clear();
        let kind = "text/event-stream; charset=utf-8";
        response_head(&mut self.out, 200, kind, None, "", self.keep);
        self.conn.write(&self.out).await
    }

    async fn send_role(&mut self) -> Result<(), Gone> {
        if self.role_sent {
            return Ok(());
        }
        if !self.head_sent {
            self.send_head().await?;
        }
        self.role_sent = true;
        self.json.clear();
        let config = Rc::clone(&self.server.config);
        let usage = self.continuous(&config);
        self.chunks.role(&self.job, usage, &mut self.json);
        self.send_json(None).await
    }

    async fn send_comment(&mut self) -> Result<(), Gone> {
        if !self.head_sent {
            self.send_head().await?;
        }
        self.event.clear();
        self.framing.comment(&mut self.event);
        self.send_event().await
    }

    async fn send_done(&mut self) -> Result<(), Gone> {
        self.json.clear();
        self.json.extend_from_slice(b"[DONE]");
        self.send_json(None).await
    }

    async fn send_last_chunk(&mut self) -> Result<End, Gone> {
        self.job.flight.end(self.job.finish);
        self.conn.write(LAST_CHUNK).await?;
        Ok(End::Kept(self.keep))
    }

    /// Sends `json` as one event.
    async fn send_json(&mut self, name: Option<&str>) -> Result<(), Gone> {
        count(&self.server.stats.events);
        self.event.clear();
        self.framing.event(name, &self.json, &mut self.event);
        self.send_event().await
    }

    async fn send_event(&mut self) -> Result<(), Gone> {
        http_chunk(&self.event, &mut self.out);
        self.conn
            .write_split(&self.out, self.server.config.split_writes)
            .await?;
        self.last_write = now_ns();
        Ok(())
    }
}
