use std::collections::{HashMap, HashSet};
use std::io::Write;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn cell(index: u32, input_len: u64, cache: CacheMode) -> CellCoord {
    CellCoord {
        cell: index,
        input_len: Some(input_len),
        output_len: Some(64),
        cache,
    }
}

fn synthetic(seed: u64, nonce: u64) -> Workload {
    Workload::build(&WorkloadSpec::default(), seed, nonce).unwrap()
}

fn ids(plan: RequestPlan) -> Vec<u32> {
    match plan.prompt {
        Prompt::TokenIds(ids) => ids,
        other => panic!("{other:?}"),
    }
}

fn measured(workload: &Workload, cell: &CellCoord, index: u64) -> Vec<u32> {
    ids(workload.request(cell, Phase::Measured, index).unwrap())
}

fn file_workload(kind: WorkloadKind, repeat: bool, text: &str) -> Workload {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let spec = WorkloadSpec {
        kind,
        path: Some(file.path().to_owned()),
        repeat: Some(repeat),
        ..WorkloadSpec::default()
    };
    Workload::build(&spec, 0, 1).unwrap()
}

const PROMPTS: &str = "{\"prompt\": \"one two three\", \"output_len\": 9}\n{\"prompt\": [5, 6]}\n";

#[test]
fn fr_10_two_runs_never_send_equal_prompts() {
    let cell = cell(0, 64, CacheMode::Cold);
    let (a, b) = (synthetic(0, 1), synthetic(0, 2));
    let of = |w: &Workload| -> HashSet<Vec<u32>> {
        (0..200)
            .map(|i| measured(w, &cell, i)[..8].to_vec())
            .collect()
    };
    let (a, b) = (of(&a), of(&b));
    assert_eq!(a.len(), 200);
    assert!(a.is_disjoint(&b));
}

#[test]
fn fr_11_a_length_of_one_is_a_prompt_of_one() {
    let workload = synthetic(0, 3);
    let plan = workload.request(&cell(0, 1, CacheMode::Cold), Phase::Measured, 0);
    assert_eq!(ids(plan.unwrap()).len(), 1);
    for cache in [CacheMode::Warm, CacheMode::Prefix(0.9)] {
        assert_eq!(measured(&workload, &cell(0, 1, cache), 0).len(), 1);
    }
}

#[test]
fn text_prompts_have_the_words_that_the_calibration_says() {
    let spec = WorkloadSpec {
        prompt_kind: Some(PromptKind::Text),
        ..WorkloadSpec::default()
    };
    let fit = TextCalibration {
        tokens_per_word: 1.25,
        overhead_tokens: 24.0,
    };
    let workload = Workload::build(&spec, 0, 4).unwrap();
    assert!(workload.needs_calibration());
    let workload = workload.with_calibration(fit).unwrap();
    let plan = workload.request(&cell(0, 1024, CacheMode::Cold), Phase::Measured, 0);
    match plan.unwrap().prompt {
        Prompt::Text(text) => assert_eq!(text.split(' ').count(), 800),
        other => panic!("{other:?}"),
    }
    let broken = TextCalibration {
        tokens_per_word: 0.0,
        overhead_tokens: 0.0,
    };
    assert!(workload.with_calibration(broken).is_err());
}

#[test]
fn the_longer_probe_text_has_every_word_once_more() {
    let workload = synthetic(0, 5);
    let words = |n| -> Vec<String> {
        let text = workload.probe_text(n);
        text.split(' ').map(str::to_owned).collect()
    };
    let [short, long] = workload.probe_words();
    let (short, long) = (words(short), words(long));
    assert_eq!(short, long[..short.len()]);
    let mut more: Vec<&str> = long[short.len()..].iter().map(String::as_str).collect();
    more.sort_unstable();
    let mut all = words::WORDS;
    all.sort_unstable();
    assert_eq!(more, all);
}

#[test]
fn drawn_lengths_are_the_same_in_every_cell_and_run_of_one_seed() {
    let spec = WorkloadSpec {
        lengths: Some(Lengths::Uniform(0.5)),
        ..WorkloadSpec::default()
    };
    let lens = |seed, nonce, index| -> Vec<(Option<u64>, Option<u64>)> {
        let workload = Workload::build(&spec, seed, nonce).unwrap();
        let cell = cell(index, 100, CacheMode::Cold);
        (0..50)
            .map(|i| workload.request(&cell, Phase::Measured, i).unwrap())
            .map(|plan| (plan.input_len, plan.output_len))
            .collect()
    };
    assert_eq!(lens(1, 1, 0), lens(1, 99, 7));
    assert_ne!(lens(1, 1, 0), lens(2, 1, 0));
    let distinct: HashSet<_> = lens(1, 1, 0).into_iter().collect();
    assert!(distinct.len() > 40);
}

#[test]
fn output_lengths_can_be_fixed_while_input_lengths_are_drawn() {
    let spec = WorkloadSpec {
        lengths: Some(Lengths::Normal(0.3)),
        output_lengths: Some(Lengths::Fixed),
        ..WorkloadSpec::default()
    };
    let workload = Workload::build(&spec, 0, 1).unwrap();
    let cell = cell(0, 500, CacheMode::Cold);
    let plans: Vec<_> = (0..20)
        .map(|i| workload.request(&cell, Phase::Measured, i).unwrap())
        .collect();
    assert!(plans.iter().all(|plan| plan.output_len == Some(64)));
    let inputs: HashSet<_> = plans.iter().map(|plan| plan.input_len).collect();
    assert!(inputs.len() > 10);
}

#[test]
fn prime_requests_fit_the_declared_cache() {
    let workload = synthetic(0, 6);
    let count = |cache| workload.prime_count(&cell(0, 1000, cache), 32);
    assert_eq!(count(CacheMode::Cold), 0);
    assert_eq!(count(CacheMode::Workload), 0);
    assert_eq!(count(CacheMode::Warm), 32);
    assert_eq!(count(CacheMode::Prefix(0.5)), 1);
    assert_eq!(
        workload.prime_count(&cell(0, 1, CacheMode::Prefix(0.2)), 32),
        0
    );

    let cold = cell(0, 1000, CacheMode::Cold);
    assert_eq!(workload.request(&cold, Phase::Prime, 0), None);
    let prefix = cell(0, 1000, CacheMode::Prefix(0.5));
    let prime = workload.request(&prefix, Phase::Prime, 0).unwrap();
    assert_eq!((prime.input_len, prime.output_len), (Some(500), Some(1)));
    assert_eq!(workload.request(&prefix, Phase::Prime, 1), None);
}

#[test]
fn file_prompts_are_sent_as_they_stand_and_the_file_ends() {
    let workload = file_workload(WorkloadKind::Jsonl, false, PROMPTS);
    let cell = cell(0, 1000, CacheMode::Workload);
    assert_eq!((workload.len(), workload.name()), (Some(2), "jsonl"));
    let plan = |i| workload.request(&cell, Phase::Measured, i);
    let first = plan(0).unwrap();
    assert_eq!(first.prompt, Prompt::Text("one two three".to_owned()));
    assert_eq!((first.input_len, first.output_len), (None, Some(9)));
    let second = plan(1).unwrap();
    assert_eq!((second.input_len, second.output_len), (Some(2), Some(64)));
    assert_eq!(plan(2), None);

    assert!(workload.shortfall(2).is_none());
    let message = workload.shortfall(5).unwrap().to_string();
    assert!(
        message.contains("holds 2 requests, the cell wants 5"),
        "{message}"
    );
}

#[test]
fn a_repeated_file_starts_over() {
    let workload = file_workload(WorkloadKind::Jsonl, true, PROMPTS);
    let cell = cell(0, 1000, CacheMode::Warm);
    let plan = |i| workload.request(&cell, Phase::Measured, i);
    assert_eq!(plan(2), plan(0));
    assert_eq!(workload.len(), None);
    assert!(workload.shortfall(5).is_none());
    assert_eq!(workload.prime_count(&cell, 5), 2, "once each");
    assert_eq!(
        workload.request(&cell, Phase::Prime, 1).unwrap().output_len,
        Some(1)
    );
}

#[test]
fn warm_up_of_a_file_is_made_up_at_the_same_length() {
    let chat = json!({"messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a b c"}]}
    ]});
    let workload = file_workload(WorkloadKind::Jsonl, false, &format!("{PROMPTS}{chat}\n"));
    let cell = cell(0, 1000, CacheMode::Workload);
    let warm = |i| workload.request(&cell, Phase::Warmup, i).unwrap().prompt;
    match warm(0) {
        Prompt::Text(text) => {
            assert_eq!(text.split(' ').count(), 3);
            assert_ne!(text, "one two three");
        }
        other => panic!("{other:?}"),
    }
    match warm(2) {
        Prompt::Messages(messages) => assert_eq!(items::spoken_words(&messages), 5),
        other => panic!("{other:?}"),
    }
    assert_ne!(warm(0), warm(3), "past the end of the file, still distinct");
}

#[test]
fn the_length_of_a_sharegpt_answer_gives_way_to_the_cell() {
    let text = r#"[{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a b"}]},
                   {"conversations": []}]"#;
    let workload = file_workload(WorkloadKind::Sharegpt, false, text);
    assert_eq!(workload.notes()[0].code, "sharegpt_skipped");
    let mut cell = cell(0, 1, CacheMode::Workload);
    let output = |cell: &CellCoord| {
        workload
            .request(cell, Phase::Measured, 0)
            .unwrap()
            .output_len
    };
    assert_eq!(output(&cell), Some(64));
    cell.output_len = None;
    assert_eq!(output(&cell), Some(2));
}

#[test]
fn settings_of_another_kind_are_refused_with_the_valid_ones() {
    let spec = WorkloadSpec {
        path: Some("x".into()),
        ..WorkloadSpec::default()
    };
    let message = Workload::build(&spec, 0, 0).unwrap_err().to_string();
    assert!(
        message.starts_with("path has no meaning for a synthetic workload"),
        "{message}"
    );
    assert!(message.contains("output_lengths"), "{message}");

    let spec = WorkloadSpec {
        kind: WorkloadKind::Trace,
        ..WorkloadSpec::default()
    };
    let message = Workload::build(&spec, 0, 0).unwrap_err().to_string();
    assert_eq!(
        message,
        "path is missing: expected the file of the trace workload"
    );

    let spec = WorkloadSpec {
        token_id_min: Some(100),
        token_id_max: Some(120),
        ..WorkloadSpec::default()
    };
    let message = Workload::build(&spec, 0, 0).unwrap_err().to_string();
    assert!(message.contains("at least 256 token ids"), "{message}");
}

#[test]
fn cells_that_cannot_be_made_are_refused() {
    let workload = synthetic(0, 0);
    let mut bad = cell(0, 0, CacheMode::Cold);
    assert!(
        workload
            .check_cell(&bad)
            .unwrap_err()
            .to_string()
            .starts_with("input_len is 0")
    );
    bad.input_len = Some(5);
    bad.output_len = None;
    assert!(
        workload
            .check_cell(&bad)
            .unwrap_err()
            .to_string()
            .starts_with("output_len is missing")
    );
    assert!(
        workload
            .check_cell(&cell(0, 5, CacheMode::Prefix(1.5)))
            .is_err()
    );
    assert!(workload.check_cell(&cell(0, 5, CacheMode::Warm)).is_ok());

    let file = file_workload(WorkloadKind::Jsonl, false, PROMPTS);
    assert!(
        file.check_cell(&cell(0, 5, CacheMode::Prefix(0.5)))
            .is_err()
    );
    assert!(file.check_cell(&cell(0, 5, CacheMode::Workload)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_two_cold_prompts_share_their_first_block(
        nonces in proptest::collection::hash_set(any::<u64>(), 2),
        seed: u64,
        len in 8u64..40,
        text: bool,
    ) {
        let spec = WorkloadSpec {
            prompt_kind: text.then_some(PromptKind::Text),
            ..WorkloadSpec::default()
        };
        let mut heads = HashMap::new();
        for nonce in nonces {
            let workload = Workload::build(&spec, seed, nonce).unwrap();
            for (index, phase) in [Phase::Warmup, Phase::Measured].into_iter().enumerate() {
                for at in 0..60u32 {
                    let cell = cell(at % 3, len, CacheMode::Cold);
                    let plan = workload.request(&cell, phase, u64::from(at / 3)).unwrap();
                    let head = match plan.prompt {
                        Prompt::TokenIds(ids) => format!("{:?}", &ids[..8]),
                        Prompt::Text(text) => text.split(' ').take(8).collect(),
                        Prompt::Messages(_) => unreachable!(),
                    };
                    prop_assert_eq!(heads.insert(head, (nonce, index, at)), None);
                }
            }
        }
    }

    #[test]
    fn requests_are_pure_and_stay_inside_the_token_range(
        seed: u64, nonce: u64, index in 0u64..1 << 40, at in 0u32..1000, len in 1u64..300,
    ) {
        let cell = cell(at, len, CacheMode::Cold);
        let plan = synthetic(seed, nonce).request(&cell, Phase::Measured, index).unwrap();
        let again = synthetic(seed, nonce).request(&cell, Phase::Measured, index).unwrap();
        prop_assert_eq!(&plan, &again);
        let ids = ids(plan);
        prop_assert_eq!(ids.len() as u64, len);
        prop_assert!(ids.iter().all(|id| (1000..4000).contains(id)));
    }

    #[test]
    fn a_warm_request_is_its_prime_request(seed: u64, nonce: u64, index in 0u64..1000, len in 1u64..300) {
        let workload = synthetic(seed, nonce);
        let cell = cell(3, len, CacheMode::Warm);
        let prime = workload.request(&cell, Phase::Prime, index).unwrap();
        let plan = workload.request(&cell, Phase::Measured, index).unwrap();
        prop_assert_eq!(prime.prompt, plan.prompt.clone());
        if len >= 8 {
            let warm_up = ids(workload.request(&cell, Phase::Warmup, index).unwrap());
            prop_assert_ne!(&warm_up[..8], &ids(plan)[..8]);
        }
    }

    #[test]
    fn a_prefix_is_shared_by_the_cell_and_by_nothing_else(
        nonce: u64, share in 0.05f64..0.95, len in 32u64..400, drawn: bool,
    ) {
        let spec = WorkloadSpec {
            lengths: drawn.then_some(Lengths::Uniform(0.5)),
            ..WorkloadSpec::default()
        };
        let workload = Workload::build(&spec, 0, nonce).unwrap();
        let here = cell(1, len, CacheMode::Prefix(share));
        let prime = ids(workload.request(&here, Phase::Prime, 0).unwrap());
        let mut tails = HashSet::new();
        for index in 0..20 {
            let prompt = measured(&workload, &here, index);
            let shared = (prompt.len() as f64 * share).round() as usize;
            prop_assert!(shared <= prime.len());
            prop_assert_eq!(&prompt[..shared], &prime[..shared]);
            prop_assert!(tails.insert(prompt[shared..].to_vec()) || prompt.len() - shared < 8);
            let warm_up = ids(workload.request(&here, Phase::Warmup, index).unwrap());
            prop_assert_ne!(&warm_up[..8], &prompt[..8]);
        }
        if prime.len() >= 8 {
            let there = cell(2, len, CacheMode::Prefix(share));
            let other = ids(workload.request(&there, Phase::Prime, 0).unwrap());
            prop_assert_ne!(&other[..8], &prime[..8]);
        }
    }
}
