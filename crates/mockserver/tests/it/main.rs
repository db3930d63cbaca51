//! The mock server, seen from a raw socket.

#[cfg(test)]
mod client;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod http;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod shapes;
#[cfg(test)]
mod usage;
