//! An OpenAI-compatible server with a known truth.
//!
//! It answers like vLLM 0.32 and produces tokens on a schedule that is given, exact and free of
//! drift, so that what a client measures can be held against what happened. It also fails on
//! demand, in every way in which servers and proxies were seen to fail.
//!
//! * **Truth**: either each request has its own clock ([`Mode::PerRequest`]) or all share an engine
//!   loop with prefill, a batch limit and a prefix cache ([`Mode::Engine`]). Times are absolute
//!   deadlines of `CLOCK_MONOTONIC`; with `stamp = true` a chunk's text is the time of its write.
//! * **Wire**: one event, one HTTP chunk, one write. [`MockConfig`] bends the framing.
//! * **Faults**: [`Fault`] says which requests fail and how.
//! * **Witness**: [`MockStats`] tells how many streams there were at once and how late the server
//!   itself was ([`Lag`]).
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use linktax_mockserver::{MockConfig, MockServer};
//!
//! let config = MockConfig { ttft_ms: 5.0, step_ms: 1.0, ..MockConfig::default() };
//! let server = MockServer::spawn(config)?;
//!
//! let body = r#"{"model":"mock","prompt":[1,2,3],"max_tokens":4,"stream":true}"#;
//! let mut client = TcpStream::connect(server.addr())?;
//! write!(
//!     client,
//!     "POST /v1/completions HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\
//!      content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
//!     body.len()
//! )?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//! assert_eq!(answer.matches("\"text\":\"").count(), 4);
//! assert!(answer.contains("data: [DONE]\n\n"));
//!
//! let stats = server.shutdown();
//! assert_eq!((stats.requests, stats.tokens, stats.completed), (1, 4, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same from a file, as `linktax mock --config FILE` reads it:
//!
//! ```
//! use linktax_mockserver::{MockConfig, Mode};
//!
//! let text = r#"
//! mode = "engine"
//! step_ms = 16
//! prefill_us_per_token = 40
//! max_batched_tokens = 0          # no chunked prefill: long prompts stall the others
//! tokens_per_chunk = [3, 4, 4, 2] # speculative decoding
//!
//! [[fault]]
//! kind = "error_frame"
//! every = 10
//! after_tokens = 5
//! skip_first = 2
//! "#;
//! let config = MockConfig::from_toml(text, "mock.toml".as_ref())?;
//! assert_eq!(config.mode, Mode::Engine);
//! # Ok::<(), linktax_mockserver::MockError>(())
//! ```

mod alarm;
mod body;
mod books;
mod check;
mod chunk;
mod clock;
mod config;
mod conn;
mod engine;
mod error;
mod fault;
mod flight;
mod framing;
mod generate;
mod http;
mod job;
mod plan;
mod prefix;
mod prometheus;
mod prompt;
mod routes;
mod server;
mod stats;
mod stream;
mod text;
mod whole;

pub use config::{MockConfig, Mode, ReasoningField, RoleChunk, Stall, UsagePlacement};
pub use error::MockError;
pub use fault::{Fault, FaultKind};
pub use server::{MockHandle, MockServer};
pub use stats::{Lag, MockStats, RecordedRequest};
