//! The mock server, seen from a raw socket.

mod client;
mod engine;
mod faults;
mod framing;
mod http;
mod metrics;
mod shapes;
mod usage;
