//! Cost of decoding, an event: one small event a push, and many in one push, must cost about the same.
//!
//! `cargo bench -p linktax-sse`; the target is less than 1 µs an event for `SseDecoder`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use linktax_records::Nanos;
use linktax_sse::{DecodeOptions, Endpoint, ResponseDecoder, SseDecoder, SseItem, StreamEnd};

/// A vLLM chat chunk, blank line included: 245 bytes.
const EVENT: &str = "data: {\"id\":\"chatcmpl-9ed7a034b48841ed\",\"object\":\"chat.completion.chunk\",\"created\":1795962183,\"model\":\"some-org-1/some-model-700b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token abcd\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n";

fn push(decoder: &mut SseDecoder, bytes: &[u8]) {
    let pushed = decoder.push(bytes, &mut |item: SseItem<'_>| {
        black_box(item);
    });
    assert!(pushed.is_ok());
}

fn sse(c: &mut Criterion) {
    assert_eq!(EVENT.len(), 245);
    let mut group = c.benchmark_group("sse");
    for per_push in [1, 16, 256, 4096] {
        let bytes = EVENT.repeat(per_push);
        group.throughput(Throughput::Elements(per_push as u64));
        group.bench_with_input(
            BenchmarkId::new("events_per_push", per_push),
            &bytes,
            |b, bytes| {
                let mut decoder = SseDecoder::default();
                b.iter(|| {
                    push(&mut decoder, bytes.as_bytes());
                });
            },
        );
    }
    // The slow road: CRLF in reads of 64 bytes.
    let crlf = EVENT.replace('\n', "\r\n");
    group.throughput(Throughput::Elements(1));
    group.bench_function("crlf_in_64_byte_reads", |b| {
        let mut decoder = SseDecoder::default();
        b.iter(|| {
            for part in crlf.as_bytes().chunks(64) {
                push(&mut decoder, part);
            }
        });
    });
    // Linear in a huge event: compare the rate in bytes of the two.
    for size in [1 << 20, 16 << 20] {
        let event = format!("data: {}\n\n", "x".repeat(size));
        group.throughput(Throughput::Bytes(event.len() as u64));
        group.sample_size(10);
        group.bench_with_input(
            BenchmarkId::new("huge_event_in_4k_reads", size),
            &event,
            |b, event| {
                let mut decoder = SseDecoder::default();
                b.iter(|| {
                    for part in event.as_bytes().chunks(4096) {
                        push(&mut decoder, part);
                    }
                });
            },
        );
    }
    group.finish();
}

fn response(c: &mut Criterion) {
    let mut group = c.benchmark_group("response");
    let events = 256;
    group.throughput(Throughput::Elements(events));
    group.bench_function("one_event_per_read", |b| {
        b.iter(|| {
            let mut decoder = ResponseDecoder::new(DecodeOptions::new(Endpoint::Chat));
            for i in 0..events {
                decoder.read(Nanos::from_micros(i), i, EVENT.as_bytes());
            }
            black_box(decoder.finish(StreamEnd::Clean, None))
        });
    });
    group.finish();
}

criterion_group!(benches, sse, response);
criterion_main!(benches);
