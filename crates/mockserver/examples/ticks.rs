//! Whether the mock server keeps its ticks under load, and what an event costs it.
//!
//! ```text
//! cargo run --release -p linktax-mockserver --example ticks -- [streams] [step_ms] [tokens] [engine|per_request]
//! ```
//!
//! The client drains the sockets on a second thread and looks at nothing. Each stream stays open for
//! `tokens` steps. The lag is the server's own: planned time to the moment the step was taken up.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use linktax_mockserver::{MockConfig, MockServer, Mode};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (streams, step_ms, tokens) = (number(512)?, number(10)?, number(500)?);
    let mode = match args.next().as_deref() {
        Some("per_request") => Mode::PerRequest,
        _ => Mode::Engine,
    };
    let server = MockServer::spawn(MockConfig {
        mode,
        ttft_ms: 50.0,
        step_ms: step_ms as f64,
        max_num_seqs: streams as usize,
        stamp: true,
        ..MockConfig::default()
    })?;
    let body =
        format!(r#"{{"model":"mock","prompt":[1,2,3],"max_tokens":{tokens},"stream":true}}"#);
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut sockets = Vec::new();
    for _ in 0..streams {
        let mut socket = TcpStream::connect(server.addr())?;
        socket.write_all(request.as_bytes())?;
        socket.set_nonblocking(true)?;
        sockets.push(socket);
    }
    let began = Instant::now();
    let mut buffer = vec![0; 64 << 10];
    while !sockets.is_empty() {
        // A late and lazy reader: it must not take the server's core.
        std::thread::sleep(Duration::from_millis(5));
        sockets.retain_mut(|s| !matches!(s.read(&mut buffer), Ok(0)));
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = server_cpu_seconds();
    let stats = server.shutdown();
    let events = stats.events as f64;
    let lag = &stats.lag;
    let us = |q: f64| lag.quantile(q).as_nanos() as f64 / 1e3;
    let report = format!(
        "{streams} streams, step {step_ms} ms, {mode:?}: {events} events in {wall:.2} s = {:.0}/s\n\
         lag of {} steps: p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us\n\
         server thread: {}\n",
        events / wall,
        lag.steps,
        us(0.5),
        us(0.99),
        us(0.999),
        us(1.0),
        cpu.map_or("CPU time unknown here".to_owned(), |s| format!(
            "{s:.2} s CPU = {:.0} % of a core, {:.2} us an event",
            100.0 * s / wall,
            1e6 * s / events
        )),
    );
    std::io::stdout().write_all(report.as_bytes())?;
    Ok(())
}

/// CPU time of the thread named `mock-server`, where the system tells (10 ms resolution).
fn server_cpu_seconds() -> Option<f64> {
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.split_once(')')?;
        if name == "mock-server" {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok());
            return Some((ticks(11)? + ticks(12)?) / 100.0);
        }
    }
    None
}
