//! The shared engine loop, seen from its clients.

use std::net::SocketAddr;
use std::thread;

use linktax_mockserver::{MockConfig, MockServer, Mode};

use crate::client::{COMPLETIONS, Client, post_bytes, stream, stream_body};

fn engine() -> MockConfig {
    MockConfig {
        mode: Mode::Engine,
        step_ms: 2.0,
        stamp: true,
        ..MockConfig::default()
    }
}

fn stamps(addr: SocketAddr, tokens: u64) -> Vec<u64> {
    stream(addr, tokens)
        .texts()
        .iter()
        .map(|t| t.trim().parse().unwrap())
        .collect()
}

#[test]
fn running_sequences_emit_in_the_same_tick() {
    let server = MockServer::spawn(engine()).unwrap();
    let addr = server.addr();
    let streams: Vec<Vec<u64>> = thread::scope(|s| {
        let all: Vec<_> = (0..5).map(|_| s.spawn(|| stamps(addr, 60))).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut overlaps = 0;
    for (i, a) in streams.iter().enumerate() {
        for b in &streams[i + 1..] {
            let (first, last) = (a[0].max(b[0]), a[59].min(b[59]));
            // In a tick either may write first, so between two tokens of one there are at most two of
            // the other, and over the common time the counts differ by at most two.
            let within = |s: &[u64]| s.iter().filter(|t| (first..=last).contains(t)).count();
            let (na, nb) = (within(a), within(b));
            assert!(na.abs_diff(nb) <= 2, "{na} and {nb}");
            overlaps += usize::from(na > 1);
            for pair in a.windows(2).filter(|p| p[0] >= first && p[1] <= last) {
                let between = b.iter().filter(|t| (pair[0]..pair[1]).contains(t)).count();
                assert!(
                    (0..=2).contains(&between),
                    "{between} tokens within one step"
                );
            }
        }
    }
    assert!(overlaps > 0, "the streams never ran together");
}

#[test]
fn the_first_token_waits_for_the_prefill_and_the_step() {
    let config = MockConfig {
        prefill_us_per_token: 5_000.0,
        record_requests: true,
        ..engine()
    };
    let server = MockServer::spawn(config).unwrap();
    let first = stamps(server.addr(), 2)[0];
    let arrival = server.stats().recorded[0].arrival.as_nanos();
    // Three prompt tokens at 5 ms and a step of 2 ms.
    assert!(first >= arrival + 17_000_000);
}

#[test]
fn sequences_beyond_max_num_seqs_wait() {
    let config = MockConfig {
        max_num_seqs: 2,
        step_ms: 20.0,
        ..engine()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut clients: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = Client::connect(server.addr());
            client.send(&post_bytes(COMPLETIONS, &stream_body(100_000)));
            client
        })
        .collect();
    let mut observer = Client::connect(server.addr());
    let gauges = |observer: &mut Client| {
        let page = observer.get("/metrics");
        let get = |name: &str| {
            let line = page.text().lines().find(|l| l.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        (
            get("vllm:num_requests_running{"),
            get("vllm:num_requests_waiting{"),
        )
    };
    while gauges(&mut observer) != (2.0, 3.0) {
        assert!(gauges(&mut observer).0 <= 2.0);
    }
    // The two that run are the first two; when they leave, two of the others take their places.
    clients.drain(..2);
    while gauges(&mut observer) != (2.0, 1.0) {
        assert!(gauges(&mut observer).0 <= 2.0);
    }
    assert_eq!(server.stats().peak_streams, 5);
}

#[test]
fn fr_12_the_server_counts_all_streams_at_once() {
    let config = MockConfig {
        mode: Mode::PerRequest,
        ttft_ms: 600_000.0,
        ..engine()
    };
    let server = MockServer::spawn(config).unwrap();
    let clients: Vec<Client> = (0..128)
        .map(|_| {
            let mut client = Client::connect(server.addr());
            client.send(&post_bytes(COMPLETIONS, &stream_body(5)));
            client
        })
        .collect();
    while server.stats().streams < 128 {
        thread::yield_now();
    }
    drop(clients);
    let stats = server.shutdown();
    assert_eq!((stats.peak_streams, stats.connections), (128, 128));
}
