//! The least a client can do: what `linktax bench` is compared with.
//!
//! One thread, raw sockets. Connections are open before the clock starts, the request is one fixed byte
//! string, a wake-up makes one read and takes one timestamp, events are counted by looking for `data:`.
//! No HTTP library, no JSON, no records. `scripts/bench-client.sh` runs it beside the real clients:
//!
//! ```text
//! floor --addr 127.0.0.1:8000 --concurrency 128 --requests 512 --output-len 128
//! ```
//!
//! It prints one line of JSON. Without `--addr` (as `cargo bench` and `cargo test --benches` start it) it
//! does nothing.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Start of an SSE data line.
const EVENT: &[u8] = b"data:";
/// Last chunk of a chunked body: as long as [`EVENT`], so one overlap serves both searches.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Bytes kept from one read to the next: a mark split over two reads is found once, a whole one never twice.
const OVERLAP: usize = EVENT.len() - 1;
const READ_SIZE: usize = 16 * 1024;
const OK: &[u8] = b"HTTP/1.1 200";

struct Args {
    addr: SocketAddr,
    concurrency: usize,
    requests: usize,
    input_len: usize,
    output_len: usize,
    model: String,
}

impl Args {
    /// `None` without `--addr`.
    fn parse(words: impl Iterator<Item = String>) -> Result<Option<Self>, Box<dyn Error>> {
        let words: Vec<String> = words.collect();
        let value = |name: &str| {
            let at = words.iter().position(|w| w == name)?;
            words.get(at + 1).map(String::as_str)
        };
        let number = |name: &str, default: usize| match value(name) {
            Some(text) => text.parse().map_err(|e| format!("{name} {text}: {e}")),
            None => Ok(default),
        };
        let Some(addr) = value("--addr") else {
            return Ok(None);
        };
        let concurrency = number("--concurrency", 1)?.max(1);
        Ok(Some(Args {
            addr: addr.parse()?,
            concurrency,
            requests: number("--requests", 4 * concurrency)?,
            input_len: number("--input-len", 128)?,
            output_len: number("--output-len", 128)?,
            model: value("--model").unwrap_or("mock").to_owned(),
        }))
    }

    /// The one request that every connection sends again and again.
    fn request(&self) -> Vec<u8> {
        let body = json!({
            "model": self.model,
            "prompt": (0..self.input_len).map(|i| 100 + i % 1000).collect::<Vec<_>>(),
            "max_tokens": self.output_len,
            "ignore_eos": true,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
        .to_string();
        let (addr, length) = (self.addr, body.len());
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n\
             accept: text/event-stream\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// What one connection saw.
#[derive(Default)]
struct Seen {
    ttft: Vec<Duration>,
    events: u64,
    /// One timestamp a read, kept as a real client keeps them.
    reads: Vec<Instant>,
}

/// Sends requests on one connection until `left` is used up.
async fn drive(
    mut socket: TcpStream,
    request: Rc<[u8]>,
    left: Rc<Cell<usize>>,
) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let finder = Finder::new(EVENT);
    let mut buffer = vec![0; OVERLAP + READ_SIZE];
    while let Some(rest) = left.get().checked_sub(1) {
        left.set(rest);
        let sent = Instant::now();
        socket.write_all(&request).await?;
        let (mut kept, mut first) = (0, None);
        loop {
            let n = socket.read(&mut buffer[kept..]).await?;
            let now = Instant::now();
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            seen.reads.push(now);
            let filled = &buffer[..kept + n];
            if kept == 0 && !filled.starts_with(OK) {
                let answer = String::from_utf8_lossy(filled);
                return Err(io::Error::other(format!("not a 200: {answer}")));
            }
            let events = finder.find_iter(filled).count();
            if events > 0 {
                seen.events += events as u64;
                first.get_or_insert(now);
            }
            if filled.ends_with(LAST_CHUNK) {
                break;
            }
            let end = kept + n;
            kept = end.min(OVERLAP);
            buffer.copy_within(end - kept..end, 0);
        }
        match first {
            Some(at) => seen.ttft.push(at - sent),
            None => return Err(io::Error::other("a response without an event")),
        }
    }
    Ok(seen)
}

fn process_cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        t.tv_sec.unsigned_abs(),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    )
}

/// Percentile by linear interpolation, in milliseconds.
fn percentile_ms(sorted: &[Duration], p: f64) -> Option<f64> {
    let rank = p / 100.0 * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some((low.as_secs_f64() + (high - low).as_secs_f64() * rank.fract()) * 1e3)
}

async fn run(args: &Args) -> Result<serde_json::Value, Box<dyn Error>> {
    let request: Rc<[u8]> = args.request().into();
    let left = Rc::new(Cell::new(args.requests));
    let mut sockets = Vec::with_capacity(args.concurrency);
    for _ in 0..args.concurrency {
        let socket = TcpStream::connect(args.addr).await?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }

    let (began, cpu_before) = (Instant::now(), process_cpu());
    let tasks: Vec<_> = sockets
        .into_iter()
        .map(|socket| tokio::task::spawn_local(drive(socket, request.clone(), left.clone())))
        .collect();
    let mut total = Seen::default();
    for task in tasks {
        let seen = task.await??;
        total.events += seen.events;
        total.ttft.extend(seen.ttft);
        total.reads.extend(seen.reads);
    }
    let (wall, cpu) = (began.elapsed(), process_cpu() - cpu_before);

    total.ttft.sort_unstable();
    Ok(json!({
        "concurrency": args.concurrency,
        "requests": total.ttft.len(),
        "ttft_p50_ms": percentile_ms(&total.ttft, 50.0),
        "ttft_p99_ms": percentile_ms(&total.ttft, 99.0),
        "events": total.events,
        "reads": total.reads.len(),
        "wall_s": wall.as_secs_f64(),
        "cpu_s": cpu.as_secs_f64(),
        "cpu_us_per_event": cpu.as_secs_f64() * 1e6 / total.events.max(1) as f64,
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(args) = Args::parse(std::env::args().skip(1))? else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let result = LocalSet::new().block_on(&runtime, run(&args))?;
    println!("{result}");
    Ok(())
}
