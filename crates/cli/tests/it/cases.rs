//! Field reports and the study's case, through the whole pipeline: schedule, socket, records, numbers.

use linktax_mockserver::{MockConfig, Mode, Stall};
use linktax_records::RunManifest;

use crate::rig::{Rig, fast, number, results};

/// The study's case at half its times: two requests of 128 tokens; TP2 steps faster, but one request waits for the
/// other one's prefill.
fn study(step_ms: f64, stall: Option<Stall>) -> (Rig, RunManifest) {
    let rig = Rig::new(MockConfig {
        ttft_ms: 20.0,
        step_ms,
        stall,
        ..MockConfig::default()
    });
    let flags = [
        "--concurrency",
        "2",
        "--requests",
        "2",
        "--num-warmups",
        "0",
        "--input-len",
        "64",
        "--output-len",
        "128",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    (rig, run)
}

#[test]
fn the_study_prefers_tp2_once_the_stall_is_left_out() {
    // The probe before the run is the first request the server counts.
    let stall = Stall {
        every: 2,
        at_token: 40,
        ms: 1350.0,
        skip_first: 1,
    };
    let (rig, tp2) = study(8.0, Some(stall));
    let (rig1, tp1) = study(9.58, None);

    assert_eq!(results(&tp2, 0)["stall_separable"], "separable");
    assert_eq!(number(&tp2, 0, "stall_count"), 1.0);
    let rates = |run: &RunManifest| {
        (
            number(run, 0, "usual_decode_tok_s"),
            number(run, 0, "decode_tok_s"),
        )
    };
    let ((usual2, kept2), (usual1, kept1)) = (rates(&tp2), rates(&tp1));
    assert!(
        usual2 < usual1,
        "the usual rate: TP2 {usual2}, TP1 {usual1}"
    );
    assert!(kept2 > kept1, "without stalls: TP2 {kept2}, TP1 {kept1}");
    assert!(number(&tp2, 0, "same_answer_to_ms") > number(&tp2, 0, "same_answer_from_ms"));

    // Any threshold in the valley gives the same answer.
    let again = |rig: &Rig| -> RunManifest {
        let ran = rig.run(&["summarize", "run", "--stall-gap", "700ms", "--json"]);
        serde_json::from_str(&ran.out).unwrap()
    };
    assert_eq!(number(&again(&rig1), 0, "stall_count"), 0.0);
    let again = again(&rig);
    for key in ["stall_count", "stall_s", "decode_tok_s"] {
        assert_eq!(number(&again, 0, key), number(&tp2, 0, key), "{key}");
    }
}

#[test]
fn prefill_that_is_not_chunked_stalls_others_and_is_seen_as_interference() {
    let rig = Rig::new(MockConfig {
        mode: Mode::Engine,
        step_ms: 4.0,
        prefill_us_per_token: 100.0,
        max_batched_tokens: 0,
        ..MockConfig::default()
    });
    let flags = [
        "--concurrency",
        "3",
        "--requests",
        "12",
        "--num-warmups",
        "0",
        "--input-len",
        "1000",
        "--output-len",
        "24",
        "--length-dist",
        "uniform:0.5",
        "--stall-gap",
        "40ms",
    ];
    rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert!(number(&run, 0, "stall_count") > 0.0);
    assert!(
        number(&run, 0, "interfered_stalls") > number(&run, 0, "clean_stalls"),
        "{:?}",
        results(&run, 0)
    );
    assert!(number(&run, 0, "decode_tok_s") > number(&run, 0, "usual_decode_tok_s"));
}

#[test]
fn fr_02_several_tokens_a_chunk_are_counted_as_tokens() {
    let rig = Rig::new(MockConfig {
        tokens_per_chunk: vec![3, 4, 4, 2],
        step_ms: 10.0,
        ..fast()
    });
    let flags = [
        "--concurrency",
        "1",
        "--requests",
        "4",
        "--num-warmups",
        "0",
        "--input-len",
        "32",
        "--output-len",
        "64",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    assert_eq!(number(&run, 0, "total_output_tokens"), 4.0 * 64.0);
    // 1, then 3 4 4 2 in turn: 20 chunks for 64 tokens; reads that fell together would make it more.
    assert!(number(&run, 0, "tokens_per_chunk") >= 3.2);
    assert!(results(&run, 0)["mean_itl_ms"].is_null());
    assert!(results(&run, 0)["null_reasons"]["mean_itl_ms"].is_string());
    assert!(number(&run, 0, "mean_tpot_ms") * 2.0 < number(&run, 0, "mean_step_gap_ms"));
    assert!(ran.out.contains(" tok/chunk |"));
}

#[test]
fn fr_10_a_repeated_run_is_flagged_and_two_default_runs_are_not() {
    let rig = Rig::new(fast());
    let flags = |nonce: &'static str| {
        let mut flags = vec![
            "--concurrency",
            "2",
            "--requests",
            "8",
            "--num-warmups",
            "0",
            "--input-len",
            "256",
            "--output-len",
            "4",
        ];
        if !nonce.is_empty() {
            flags.extend(["--cache", "cold", "--nonce", nonce]);
        }
        flags
    };
    for (out, nonce, contaminated) in [
        ("default-1", "", false),
        ("default-2", "", false),
        ("same-1", "c0ffee", false),
        ("same-2", "0xc0ffee", true),
    ] {
        let ran = rig.bench(out, &flags(nonce));
        let run = rig.manifest(out);
        let reasons = ran.reasons(&run);
        let expected: &[&str] = if contaminated {
            &["cache_contaminated"]
        } else {
            &[]
        };
        assert_eq!(reasons, [expected], "{out}");
        if contaminated {
            assert_eq!(ran.code, Some(1));
            assert!(
                ran.out
                    .contains("\n! cell 1 (flagged): cache_contaminated: declared cold"),
                "{}",
                ran.out
            );
        }
        assert!(
            ran.out.contains(&format!("seed 0, nonce {}", run.nonce)),
            "{out}"
        );
    }
    assert_ne!(
        rig.manifest("default-1").nonce,
        rig.manifest("default-2").nonce
    );
}

#[test]
fn warm_and_shared_prefixes_are_proved_by_the_counters() {
    let rig = Rig::new(fast());
    for (out, cache) in [("warm", "warm"), ("half", "prefix=0.5")] {
        let flags = [
            "--concurrency",
            "2",
            "--requests",
            "8",
            "--input-len",
            "256",
            "--output-len",
            "4",
            "--cache",
            cache,
        ];
        let ran = rig.bench(out, &flags);
        let run = rig.manifest(out);
        assert_eq!(ran.reasons(&run), [[""; 0]], "{cache}");
        let hit_rate = run.cells[0]
            .server
            .as_ref()
            .unwrap()
            .prefix_hit_rate()
            .unwrap();
        assert!(hit_rate > 0.4, "{cache}: {hit_rate}");
    }
}

#[test]
fn fr_11_a_prompt_that_is_longer_than_asked_is_flagged() {
    let rig = Rig::new(MockConfig {
        prompt_tokens_factor: 5.128,
        ..fast()
    });
    let flags = [
        "--concurrency",
        "1",
        "--requests",
        "4",
        "--input-len",
        "100",
        "--output-len",
        "4",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [["input_length"]]);
    assert!(
        ran.out.contains("input_length: prompts are 5.1"),
        "{}",
        ran.out
    );
    assert!(number(&run, 0, "total_input_tokens") > 2000.0);
}
