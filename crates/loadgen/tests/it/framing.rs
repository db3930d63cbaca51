use linktax_loadgen::workload::{PromptKind, WorkloadSpec};
use linktax_loadgen::{Endpoint, LoadPlan, TokenCounting};
use linktax_mockserver::{MockConfig, RoleChunk, UsagePlacement};
use linktax_records::TokenSource;

use crate::harness::{Ran, assert_reads_follow, closed, plan, quick, run, spawn};
use crate::scripted::{LAST_CHUNK, STREAM_HEAD, Say, Scripted, ending};

#[track_caller]
fn runs(config: MockConfig, requests: u64) -> Ran {
    let server = spawn(config);
    let ran = run(LoadPlan {
        keep_text: true,
        ..plan(server.base_url(), closed(2, requests))
    });
    ran.assert_all_completed(requests);
    for r in ran.measured() {
        // Six tokens, then usage and [DONE].
        assert_reads_follow(r, &[1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(r.usage.unwrap().completion_tokens, 6);
        assert_eq!(r.token_source, TokenSource::ContinuousUsage);
        let text = r.text.as_deref().unwrap();
        assert!(
            !text.contains('\u{fffd}') && !text.contains('\u{feff}'),
            "{text:?}"
        );
    }
    ran
}

#[test]
fn every_way_to_write_an_event_gives_the_same_counts() {
    let base = quick;
    for config in [
        MockConfig {
            crlf: true,
            ..base()
        },
        MockConfig {
            no_space: true,
            ..base()
        },
        MockConfig {
            event_field: true,
            ..base()
        },
        MockConfig {
            bom: true,
            ..base()
        },
        MockConfig {
            headers_with_first_token: true,
            ..base()
        },
        MockConfig {
            split_writes: 7,
            ..base()
        },
        MockConfig {
            crlf: true,
            no_space: true,
            event_field: true,
            bom: true,
            split_writes: 64,
            ..base()
        },
    ] {
        runs(config, 4);
    }
}

#[test]
fn events_written_byte_by_byte_are_whole_events() {
    let ran = runs(
        MockConfig {
            split_writes: 1,
            crlf: true,
            bom: true,
            ..quick()
        },
        2,
    );
    for r in ran.measured() {
        assert!(r.socket_reads as usize >= r.reads.len());
    }
}

#[test]
fn an_event_of_hundreds_of_kilobytes_is_one_event() {
    for r in runs(
        MockConfig {
            pad_event_bytes: 300_000,
            ..quick()
        },
        4,
    )
    .measured()
    {
        let bytes: u64 = r.reads.bytes.iter().map(|&b| u64::from(b)).sum();
        assert!(bytes > 300_000, "{bytes}");
    }
}

#[test]
fn an_event_of_sixteen_megabytes_is_one_event() {
    let ran = runs(
        MockConfig {
            pad_event_bytes: 16 << 20,
            ..quick()
        },
        1,
    );
    let widest = ran.measured()[0].reads.bytes.iter().max().copied();
    assert!(widest > Some(16 << 20), "{widest:?}");
}

#[test]
fn comments_between_events_count_as_comments_only() {
    let ran = runs(
        MockConfig {
            keepalive_ms: 2.0,
            step_ms: 15.0,
            ..quick()
        },
        2,
    );
    assert!(ran.measured().iter().all(|r| r.keepalives > 0));
}

#[test]
fn tokens_of_each_read_follow_the_cycle_of_speculative_decoding() {
    let server = spawn(MockConfig {
        tokens_per_chunk: vec![3, 4, 4, 2],
        ..quick()
    });
    let mut spec = closed(2, 4);
    spec.output_len = Some(20);
    let ran = run(plan(server.base_url(), spec.clone()));
    ran.assert_all_completed(4);
    for r in ran.measured() {
        assert_reads_follow(r, &[1, 3, 4, 4, 2, 3, 3, 0, 0]);
        assert_eq!((r.output_tokens(), r.read_tokens_exact()), (20, true));
    }

    // Without running usage the chunks are all that can be counted, and the record says so.
    let ran = run(LoadPlan {
        token_counting: TokenCounting::Final,
        ..plan(server.base_url(), spec)
    });
    ran.assert_all_completed(4);
    for r in ran.measured() {
        assert_eq!((r.output_tokens(), r.reads.counted_tokens()), (20, 7));
        assert_eq!(r.token_source, TokenSource::Events);
        assert!(!r.read_tokens_exact() && !r.output_tokens_estimated());
    }
}

#[test]
fn a_first_chunk_of_several_tokens_is_counted_as_such() {
    let server = spawn(MockConfig {
        first_chunk_tokens: 5,
        ..quick()
    });
    let ran = run(plan(server.base_url(), closed(1, 2)));
    ran.assert_all_completed(2);
    for r in ran.measured() {
        assert_reads_follow(r, &[5, 1, 0, 0]);
    }
}

#[test]
fn usage_is_found_wherever_it_stands() {
    for endpoint in [Endpoint::Completions, Endpoint::Chat] {
        for usage in [
            UsagePlacement::FinalChunk,
            UsagePlacement::InChoicesChunk,
            UsagePlacement::EveryChunk,
            UsagePlacement::NullChoices,
            UsagePlacement::AbsentChoices,
            UsagePlacement::None,
        ] {
            for role_chunk in [RoleChunk::Immediate, RoleChunk::None] {
                let server = spawn(MockConfig {
                    usage,
                    role_chunk,
                    ..quick()
                });
                let chat = endpoint == Endpoint::Chat;
                let ran = run(LoadPlan {
                    endpoint,
                    workload: WorkloadSpec {
                        prompt_kind: chat.then_some(PromptKind::Text),
                        ..WorkloadSpec::default()
                    },
                    ..plan(server.base_url(), closed(2, 2))
                });
                ran.assert_all_completed(2);
                for r in ran.measured() {
                    assert_eq!(r.reads.counted_tokens(), 6, "{endpoint:?} {usage:?}");
                    assert_eq!(r.output_tokens(), 6);
                    let known = usage != UsagePlacement::None;
                    assert_eq!(r.usage.is_some(), known, "{endpoint:?} {usage:?}");
                    assert_eq!(r.output_tokens_estimated(), !known);
                }
                assert_eq!(
                    ran.note("no_usage").is_some(),
                    usage == UsagePlacement::None
                );
            }
        }
    }
}

#[test]
fn fr_04_reads_that_split_characters_and_events() {
    // The reported bytes: read 1 ends inside a character, read 3 holds two events and the start of a third.
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let first = event("你好").into_bytes();
    let cut = first.iter().position(|b| *b == 0xe4).unwrap() + 1;
    let parts = [
        first[..cut].to_vec(),
        first[cut..].to_vec(),
        [event("!"), event("?"), "data: [DO".to_owned()]
            .concat()
            .into_bytes(),
        b"NE]\n\n".to_vec(),
    ];
    let as_chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let body: Vec<u8> = parts.concat();
    let server = Scripted::generating(move |n, _| match n {
        0 => {
            // One HTTP chunk and one write each, with time between them.
            let mut says = vec![Say::Bytes(STREAM_HEAD.to_vec())];
            for part in &parts {
                says.push(Say::Bytes(as_chunk(part)));
                says.push(Say::Pause(std::time::Duration::from_millis(20)));
            }
            says.push(Say::Bytes(LAST_CHUNK.to_vec()));
            says
        }
        n => {
            let size = [1, 3, 7, 64][n as usize - 1];
            let chunks: Vec<u8> = body.chunks(size).flat_map(as_chunk).collect();
            vec![
                Say::Bytes(STREAM_HEAD.to_vec()),
                Say::Pieces([chunks, LAST_CHUNK.to_vec()].concat(), size),
            ]
        }
    });
    let mut plan = plan(server.url(), closed(1, 5));
    plan.endpoint = Endpoint::Chat;
    plan.workload.prompt_kind = Some(PromptKind::Text);
    plan.keep_text = true;
    plan.sampling.ignore_eos = false;
    let ran = run(plan);
    ran.assert_all_completed(5);
    for r in ran.measured() {
        assert_eq!(r.text.as_deref(), Some("你好!?"));
        assert_eq!(r.reads.counted_tokens(), 3);
        assert!(r.done_marker && r.reads.t_ns.is_sorted());
        assert_reads_follow(r, &[1, 1, 1, 0]);
    }
    // The first token is there when its event is complete, one pause after the first bytes.
    let first = ran.measured()[0];
    let headers = first.t_headers_ns.unwrap() - first.t_sent_ns.unwrap();
    assert!(
        first.reads.first_token().unwrap() - headers >= linktax_records::Nanos::from_millis(19)
    );
}

#[test]
fn a_stream_without_chunked_framing_ends_with_its_connection() {
    let events = [
        br#"data: {"choices":[{"index":0,"text":"a"}]}"#.as_slice(),
        b"\n\n",
    ]
    .concat()
    .repeat(6);
    let rest = ending(6);
    let server = Scripted::generating(move |_, _| {
        // The ending's chunk framing is not wanted here: only its events.
        let rest = String::from_utf8(rest.clone()).unwrap();
        let lines = rest.lines().filter(|l| l.starts_with("data:"));
        let tail: String = lines.map(|l| format!("{l}\n\n")).collect();
        vec![
            Say::Bytes(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                    .to_vec(),
            ),
            Say::Bytes(events.clone()),
            Say::Bytes(tail.into_bytes()),
            Say::Fin,
        ]
    });
    let ran = run(plan(server.url(), closed(1, 3)));
    ran.assert_all_completed(3);
    let reconnected: Vec<bool> = ran.measured().iter().map(|r| r.reconnected).collect();
    assert_eq!(reconnected, [false, true, true]);
}
