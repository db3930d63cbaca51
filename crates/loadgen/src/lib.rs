//! Drives an OpenAI-compatible endpoint at fixed concurrencies or rates, and emits a record of every read.
//!
//! No statistics and no printing: the caller gets [`Event`]s and turns the records into numbers with the
//! `metrics` crate. How the threads work together is told in `docs/architecture.md`.

mod body;
mod cancel;
mod clock;
mod control;
mod engine;
mod error;
mod exchange;
mod feeder;
mod limits;
mod monitor;
mod observed;
mod phase;
mod plain;
mod plan;
mod preflight;
mod profile;
mod prometheus;
mod quiet;
mod session;
mod target;
mod transport;
mod worker;
pub mod workload;

pub use clock::{Clock, Monotonic, unix_now_ns};
pub use engine::{CellRun, Event, Run};
pub use error::LoadError;
pub use plan::{Endpoint, LoadPlan, Sampling, Secrets, TokenCounting, endpoint_path};
pub use target::Target;

/// How far a run goes on; sent by whoever may end it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// Go on.
    #[default]
    Run,
    /// End the current cell only.
    Cell,
    /// End everything: no new request, those under way are cancelled and recorded.
    All,
}
