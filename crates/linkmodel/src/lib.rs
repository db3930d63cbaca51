//! Arithmetic of links: message sizes, bus bandwidth, alpha-beta fits, Amdahl.
//!
//! Pure functions on numbers; nothing here measures anything. Times are nanoseconds, sizes bytes, rates bytes a second
//! unless a name says otherwise.
//!
//! What would a link of twice the bandwidth do to an all-reduce that takes 32 µs at 80 KiB and 74 µs at 320 KiB?
//!
//! ```
//! use linktax_linkmodel::{AlphaBeta, Model};
//!
//! let qwen = Model { layers: 64, hidden: 5120, dtype_bytes: 2, vocab: None, draft_depth: 3 };
//! assert_eq!(qwen.all_reduces(), 138);
//! assert_eq!(qwen.all_reduce_bytes(32), 320 << 10);
//!
//! let fit = AlphaBeta::fit(&[(80 << 10, 32_000.0), (320 << 10, 74_000.0)]).unwrap();
//! assert!((fit.alpha_ns / 1e3 - 18.0).abs() < 0.1);
//! assert!((fit.bytes_per_second().unwrap() / 1e9 - 5.85).abs() < 0.01);
//! // The fixed part stays: half the bandwidth time is gone, not half the time.
//! assert!((fit.faster(2.0).time_ns(320 << 10) / 1e3 - 46.0).abs() < 0.1);
//! ```

mod amdahl;
mod config;
mod fit;
mod messages;

pub use amdahl::{amdahl, amdahl_speedup};
pub use config::{ConfigError, dtype_bytes};
pub use fit::{AlphaBeta, FitError};
pub use messages::{Collective, Model, all_reduce_bytes};
