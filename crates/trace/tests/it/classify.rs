//! Classes of real and labelled kernel names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use linktax_trace::{Class, Classes, Group, NameId, Names, Rules, collective_of, unknown_report};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Class of a name that is its own short name.
fn class(rules: &Rules, name: &str) -> &'static str {
    rules.classify(name, "").class.as_str()
}

/// The kernels of a capture: names, and (id, instances, total ns).
fn kernels(capture: &str) -> (Names, Vec<(NameId, u64, u64)>) {
    let text = std::fs::read_to_string(data().join(format!("kernel-names-{capture}.tsv"))).unwrap();
    let mut names = Names::default();
    let rows = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let id = names.push(fields[3], fields[2]);
            (id, fields[0].parse().unwrap(), fields[1].parse().unwrap())
        })
        .collect();
    (names, rows)
}

/// Kernel time of a capture by group, milliseconds.
fn groups(capture: &str) -> BTreeMap<Group, f64> {
    let (names, rows) = kernels(capture);
    let classes = Classes::of(&names, &Rules::embedded());
    let mut sums = BTreeMap::new();
    for (id, _, ns) in rows {
        *sums.entry(classes.name(id).group()).or_default() += ns as f64 / 1e6;
    }
    sums
}

const CAPTURES: [&str; 12] = [
    "nsys-ai-h100_2gpu_1s",
    "nsys-ai-mfu_2gpu_after",
    "nsys-ai-mfu_2gpu_before",
    "torch-graph-level-nsys2023.4",
    "torch-graph-node-nsys2023.4",
    "torch-graph-node-nsys2025.3",
    "vllm-qwen3-4b-decode-c16",
    "vllm-qwen3-4b-decode-c16-graph-level",
    "vllm-qwen3-4b-mixed-prefill",
    "vllm-qwen3-4b-ngram-c1",
    "vllm-qwen3-4b-tp2-two-ranks-one-gpu",
    "vllm-qwen3-next-gdn-decode-c16",
];

/// The spelling of the demangler that this name was not written by: nsys writes `(int)128`, `(bool)0`, `<unnamed>::`
/// and `T1 *`; others write `128`, `false`, `4096ul`, `(anonymous namespace)::` and `T1*`.
fn respell(name: &str) -> String {
    let mut name = name
        .replace("<unnamed>::", "(anonymous namespace)::")
        .replace(" *", "*")
        .replace(" &", "&")
        .replace("(bool)0", "false")
        .replace("(bool)1", "true")
        .replace("(int)", "");
    for (kind, suffix) in [
        ("(unsigned int)", "u"),
        ("(unsigned long)", "ul"),
        ("(long)", "l"),
    ] {
        while let Some(at) = name.find(kind) {
            let rest = &name[at + kind.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '-')
                .unwrap_or(rest.len());
            name = format!("{}{}{suffix}{}", &name[..at], &rest[..end], &rest[end..]);
        }
    }
    name.strip_prefix("void ").unwrap_or(&name).to_owned()
}

/// The other way: bare numbers of template arguments get nsys's casts.
fn respell_for_nsys(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        let starts = depth > 0 && c.is_ascii_digit() && out.ends_with(['<', ' ', ',']);
        if starts {
            out.push_str("(int)");
        }
        out.push(c);
    }
    out.replace("(anonymous namespace)::", "<unnamed>::")
        .replace("false", "(bool)0")
        .replace("true", "(bool)1")
        .replace('*', " *")
}

#[test]
fn every_labelled_name_has_its_class_in_both_spellings() {
    let rules = Rules::embedded();
    let text = std::fs::read_to_string(data().join("kernel-names.tsv")).unwrap();
    let mut wrong = String::new();
    let mut seen = 0;
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        // `trap:` marks a name made to mislead; the right class follows. The two classes of fused collectives are one
        // in the labels.
        let right = fields[1].strip_prefix("trap:").unwrap_or(fields[1]);
        for name in [
            fields[0].to_owned(),
            respell(fields[0]),
            respell_for_nsys(fields[0]),
        ] {
            seen += 1;
            let found = class(&rules, &name);
            if found != right && !(right == "comm.fused" && found == "comm.fused_gemm") {
                let _ = writeln!(wrong, "{found} instead of {right}: {name}");
            }
        }
    }
    assert_eq!(seen, 3 * 210);
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn families_hold_for_names_that_no_list_has() {
    let rules = Rules::embedded();
    for (name, right) in [
        (
            "nvjet_sm120_qqsss_96x24_128x7_8x1_h_bz_splitK_NNN",
            "linear",
        ),
        ("sm121_xmma_gemm_e4m3e4m3_new", "linear"),
        (
            "ncclDevKernel_AllToAll_TREE_LL128(ncclDevKernelArgsStorage<8192ul>)",
            "comm.nccl",
        ),
        (
            "void next::twoShotAllReduceKernel<4>(float*)",
            "comm.custom_ar",
        ),
        (
            "fmhaSm130Kernel_QE2m1KvE2m1OBfloat16H64PagedKv",
            "attention",
        ),
        ("triton_red_fused_native_layer_norm_mm_77", "norm"),
        ("void lab::rms_norm_v9<float>(float*)", "norm"),
        ("chunk_gated_delta_rule_bwd_kernel_dhu", "ssm"),
        ("bmm_MxE4m3_MxE2m1Bfloat16_Fp32_t128x16x256", "moe_gemm"),
    ] {
        assert_eq!(class(&rules, name), right, "{name}");
    }
}

#[test]
fn unknown_time_of_every_capture_is_below_one_percent() {
    let rules = Rules::embedded();
    for capture in CAPTURES {
        let (names, rows) = kernels(capture);
        let classes = Classes::of(&names, &rules);
        let report = unknown_report(&names, &classes, rows.iter().map(|r| (r.0, r.2)));
        assert!(
            report.share.is_some_and(|share| share < 0.01),
            "{capture}: {:?}\n{}",
            report.share,
            report.stub
        );
    }
}

#[test]
fn classes_of_the_captures_kernels() {
    let rules = Rules::embedded();
    let mut table: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for capture in CAPTURES {
        let (names, rows) = kernels(capture);
        let classes = Classes::of(&names, &rules);
        for (id, _, ns) in rows {
            let name: String = names.full(id).chars().take(110).collect();
            *table.entry((classes.name(id).as_str(), name)).or_default() += ns as f64 / 1e6;
        }
    }
    let lines: String = table
        .iter()
        .fold(String::new(), |mut text, ((class, name), ms)| {
            let _ = writeln!(text, "{class:<22} {ms:>11.3} ms  {name}");
            text
        });
    insta::assert_snapshot!("kernels_of_the_captures", lines);
}

#[test]
fn decode_steps_have_the_known_linear_and_attention_time() {
    let steps = 60.0;
    let groups = groups("vllm-qwen3-4b-decode-c16");
    let per_step = |group| groups.get(&group).copied().unwrap_or_default() / steps;
    assert!((per_step(Group::Linear) - 2.59).abs() < 0.01, "{groups:?}");
    assert!(
        (per_step(Group::Attention) - 4.78).abs() < 0.01,
        "{groups:?}"
    );
    assert!(!groups.contains_key(&Group::Comm), "{groups:?}");
}

#[test]
fn the_hybrid_model_has_linear_attention_and_experts() {
    let groups = groups("vllm-qwen3-next-gdn-decode-c16");
    let of = |group| groups.get(&group).copied().unwrap_or_default();
    assert!(of(Group::Moe) > 110.0, "{groups:?}");
    assert!(of(Group::Ssm) > 10.0 && of(Group::Ssm) < 15.0, "{groups:?}");
    assert!(
        of(Group::Attention) > 17.0 && of(Group::Attention) < 19.0,
        "{groups:?}"
    );
}

#[test]
fn linear_attention_folds_into_attention_only_on_request() {
    let (names, rows) = kernels("vllm-qwen3-next-gdn-decode-c16");
    let classes = Classes::of(&names, &Rules::embedded());
    let sum = |classes: &Classes, group| -> u64 {
        rows.iter()
            .filter(|r| classes.name(r.0).group() == group)
            .map(|r| r.2)
            .sum()
    };
    let folded = classes.clone().fold_ssm();
    assert!(sum(&classes, Group::Ssm) > 0);
    assert_eq!(sum(&folded, Group::Ssm), 0);
    assert_eq!(
        sum(&folded, Group::Attention),
        sum(&classes, Group::Attention) + sum(&classes, Group::Ssm)
    );
    assert_eq!(sum(&folded, Group::Linear), sum(&classes, Group::Linear));
}

#[test]
fn collectives_of_two_ranks_are_communication() {
    let (names, rows) = kernels("vllm-qwen3-4b-tp2-two-ranks-one-gpu");
    let classes = Classes::of(&names, &Rules::embedded());
    let instances: u64 = rows
        .iter()
        .filter(|r| classes.name(r.0) == Class::COMM_NCCL && names.short(r.0).contains("AllReduce"))
        .map(|r| r.1)
        .sum();
    // 24 steps on 2 ranks, 2 × 12 + 1 a step.
    assert_eq!(instances, 24 * 2 * 25);
    let others = rows
        .iter()
        .filter(|r| classes.name(r.0).group() == Group::Comm)
        .all(|r| names.short(r.0).starts_with("nccl"));
    assert!(others);
}

#[test]
fn fr_16_communication_kernels_are_found_and_named_with_care() {
    let rules = Rules::embedded();
    let names = [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
            "comm.nccl",
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
            "comm.nccl",
        ),
        (
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
            "comm.nccl",
        ),
        (
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)",
            "comm.custom_ar",
        ),
        (
            "multimem_all_reduce_kernel<c10::BFloat16, 16>",
            "comm.custom_ar",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)",
            "elem",
        ),
        ("cutlass_80_tensorop_bf16_gemm_128x128", "linear"),
        (
            "flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>",
            "attention",
        ),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "ssm"),
        ("never_seen_before", "unknown"),
    ];
    let mut comm_ms = 0;
    for (name, right) in names {
        let found = rules.classify(name, "").class;
        assert_eq!(found.as_str(), right, "{name}");
        comm_ms += u32::from(found.group() == Group::Comm);
    }
    assert_eq!(comm_ms, 5);
    for (name, shown) in names[..3].iter().zip([
        "all-reduce (per name, not certain)",
        "all-reduce (per name, not certain)",
        "send/recv (per name, not certain)",
    ]) {
        let collective = collective_of(name.0).unwrap();
        assert_eq!(collective.to_string(), shown);
        let json = serde_json::to_string(&collective).unwrap();
        for word in ["LL", "RING", "SIMPLE", "ring", "simple"] {
            assert!(!json.contains(word), "{json}");
        }
    }
    // What is not known is listed with its time, never dropped.
    let mut table = Names::default();
    let ids: Vec<NameId> = names.iter().map(|n| table.push(n.0, "")).collect();
    let classes = Classes::of(&table, &rules);
    let report = unknown_report(&table, &classes, ids.into_iter().map(|id| (id, 1_000_000)));
    assert_eq!(
        (report.unknown_ns, report.total_ns),
        (1_000_000, 10_000_000)
    );
    assert_eq!(report.top[0].name, "never_seen_before");
}

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/kernel-rules.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_rule_file_of_the_guide_works() {
    let guide = guide();
    let (_, rest) = guide.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), example).unwrap();
    let rules = Rules::with_user_file(file.path()).unwrap();
    assert_eq!(
        class(&rules, "void lab::decode_fast<(int)8>(T1 *)"),
        "attention"
    );
    assert_eq!(
        class(&rules, "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"),
        "moe_gemm"
    );
    assert_eq!(
        class(&rules, "nvjet_tst_192x192_64x4_2x1_v_bz_bias_splitK_TNN"),
        "linear"
    );
    assert_ne!(rules.hash(), Rules::embedded().hash());
}

#[test]
fn the_guide_lists_every_class_under_its_group() {
    let guide = guide();
    for &class in Class::ALL {
        let row = format!("| `{}` |", class.group());
        let line = guide.lines().find(|l| l.starts_with(&row)).unwrap();
        assert!(line.contains(&format!("`{class}`")), "{class} in {line}");
    }
}

#[test]
fn a_missing_rule_file_is_named() {
    let error = Rules::with_user_file(Path::new("no/such.toml")).unwrap_err();
    assert_eq!(error.to_string(), "no/such.toml: reading kernel rules");
}

/// The output of `trace kernels --explain`: a rule, a row of the table, nothing.
#[test]
fn explanations() {
    let rules = Rules::embedded();
    let text: String = [
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(cublasLt::cublasSplitKParams<T6>, const T4 *)",
        "_gqa_sparse_fwd_kernel",
        "kernel",
        "void lab::new_kernel<(bool)1>(T1 *)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<fla…",
    ]
    .iter()
    .map(|name| format!("{}\n", rules.explain(name)))
    .collect();
    insta::assert_snapshot!(text);
}
