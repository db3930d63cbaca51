#!/usr/bin/env python3
"""Give every kernel definition of a framework the class of the directory it lives in.

Reads lines `kind <TAB> kernel <TAB> path` (a listing of the launched `__global__` and `@triton.jit` functions with
their source path), or a table this script wrote before, and writes the table that the trace crate embeds:
`kind <TAB> kernel <TAB> class <TAB> path`. `-` stands for "undecided": a name that says too little on its own
(`kernel`), or a directory without a class. Run it again on its own output after a change of the map:

    scripts/vllm-kernel-classes.py crates/trace/src/classify/vllm-kernels.tsv
    scripts/vllm-kernel-classes.py LISTING --version 0.34.0 --out crates/trace/src/classify/vllm-kernels.tsv

The classes come from where a kernel is defined, not from its name; a name is looked at only where one file holds
kernels of several classes.
"""

import argparse
import collections
import re
import sys

# Bare names that say nothing: several kernels of several frameworks have them.
GENERIC = {
    "kernel", "_kernel", "oneshot", "signal_kernel", "reduce_kernel", "decode_kernel", "store_kernel",
    "rotate_kernel", "mean_kernel", "_softmax_kernel", "_combine_kernel", "_add_fp32",
}

# (path, name, class): the first pair of patterns that is found decides.
MAP = [
    # collectives and what is fused with them
    ("csrc/attention/dcp_utils/|csrc/custom_all_|csrc/mnnvl_lamport|quickreduce/", "", "comm.custom_ar"),
    ("csrc/beam/allreduce|csrc/minimax_reduce|/ops/lamport|ops/engram_peer", "", "comm.fused"),
    # weight preparation
    ("csrc/quantization/", "repack|prepack|preprocess|encode_int4b|^shuffle_", "load_time"),
    # linear attention and state space
    ("mamba|flash_linear_attention|/kda/|_kda_|kda_metadata|lightning_attn|csrc/gdn/|recoverssm|_xpu_ops", "", "ssm"),
    # mixture of experts
    ("router/", "splitk_reduce|reduce_terms", "linear.splitk_reduce"),
    ("router_bf16x3", "reduce_splits", "linear.splitk_reduce"),
    ("router/|router_bf16x3", "gemm|bf16x3", "linear"),
    ("fused_moe/|lora/ops", "^_silu_mul|_swiglu", "act"),
    ("moe", "get_group_gemm_starts", "moe_aux"),
    ("moe", "gemm|gemv|^fused_moe|_fused_moe_lora|batched_triton|emulation_kernel", "moe_gemm"),
    ("moe|fused_routing|w8a8/cutlass/moe|get_group_starts|models/gemma4", "", "moe_aux"),
    # attention: first what selects tokens and what writes the cache
    ("cache_kernels|cache_utils|kv_transfer|kv_offload|worker/utils|concat_kv_cache|hisparse|swap_blocks", "", "kv"),
    ("attention|_quant_cache", "(store|insert|reshape_and_cache|reshape_cache|gather_cache|quant_and_cache|cp_gather|_ring_rows)", "kv"),
    ("concat_mla_q|persistent_topk|indexer|index_topk|/dsa/|qsa|kpool|candidate_topk|topk_pack|sparse_scores|step5/nvidia/ops/(sparse_indexer|summary|sparse_prefill_pages)", "", "attention.indexer"),
    ("csrc/sampler", "^topK", "attention.indexer"),
    ("rocm_aiter_mla_sparse|flashinfer_mla_sparse|sparse_mla_attention|sparse_swa|mla/sparse_utils", "topk|indices|index|candidate|mqa|seqlen|lengths|visibility", "attention.indexer"),
    ("attention/ops/", "rope", "rope"),
    ("norm_rope|qknorm|qk_norm|rotary|pos_encoding|mrope|packed_qk_rope", "", "rope"),
    ("fused_compress_quant_cache|query_quant|qkv_indexer|common/kernels", "rope|norm", "rope"),
    ("sparse_pa|compressor|csa_tail_ring|swa_decode_meta|keylist|prefill_indexer_metadata", "", "attention.indexer"),
    ("v1/worker/.*attention|models/.*/(attention|fa4|rel_attention|sparse_attn|sparse_decode|sparse_prefill|swa_decode|msa_)|layers/attention|v1/attention|csrc/attention|rocm/attention|deepencoder|xpu_sparse_decode|attention_ops", "", "attention"),
    # linear
    ("", "splitk_reduce|reduce_partials", "linear.splitk_reduce"),
    ("kernels/linear|dsv3_fused_a_gemm|skinny_gemms|q_gemm|gemv_rdna|awq|gptq|machete|marlin|lora/ops|triton_scaled_mm", "^(?!.*quant_act)", "linear"),
    ("batch_invariant", "matmul|bmm", "linear"),
    ("fp8_utils", "scaled_mm", "linear"),
    ("qkvr_prep", "proj|^_q_kernel|^_kv_kernel|^_qkvr", "linear"),
    # sampling and preparation
    ("worker/gpu/sample|rejection_sampler|csrc/sampler|sampled_topk|structured_outputs|metrics/logits|sampler|fused_markov", "", "sample"),
    ("v1/worker/", "", "prep"),
    ("model_state|metadata", "", "prep"),
    # the rest of the layer
    ("embed|ple|engram", "embed|lookup|ngram|NGram|hash", "embed"),
    ("compressed_tensors_embedding|embedding", "", "embed"),
    ("pos_embed|qwen3_vl", "", "embed"),
    ("layernorm|norm", "silu", "act"),
    ("norm|mhc|_ihc|/hc", "norm", "norm"),
    ("batch_invariant|silu_and_mul", "rms_norm", "norm"),
    ("layernorm|minimax_rms_norm|fused_norm|gemma_rmsnorm|mm_input_norm|ops/norm|conv_ops|mm_towers|mtp", "", "norm"),
    ("activation|silu|swiglu|fused_silu|relu2", "", "act"),
    ("attention_gate", "", "act"),
    ("fp8_utils|int8_utils|mxfp4_utils|nvfp4", "silu", "act"),
    ("quantization/|qkv_padded_fp8_quant|mxfp4_w4a8|megamoe", "", "quant"),
    ("mhc|_ihc|/hc|soft_cap|batch_invariant", "", "elem"),
]
COMPILED = [(re.compile(p, re.I), re.compile(n), c) for p, n, c in MAP]


def classify(name, path):
    """The class of a kernel by the path of its definition."""
    if name in GENERIC:
        return "-"
    for path_pattern, name_pattern, cls in COMPILED:
        if path_pattern.search(path) and name_pattern.search(name):
            return cls
    return "-"


def read(lines):
    """(kind, name, path) of a listing or of a table."""
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if line.startswith("#") or len(fields) < 3 or fields[0] not in ("cuda", "triton"):
            continue
        yield fields[0], fields[1], fields[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("listing")
    parser.add_argument("--version", default="0.33.0", help="of vLLM, for the head of the table")
    parser.add_argument("--out", help="default: write over the input")
    parser.add_argument("--undecided", action="store_true", help="print the rows without a class and stop")
    args = parser.parse_args()
    with open(args.listing, encoding="utf-8") as f:
        rows = sorted({(kind, name, path) for kind, name, path in read(f)}, key=lambda r: (r[2], r[1]))
    classes = {row: classify(row[1], row[2]) for row in rows}
    if args.undecided:
        for row in rows:
            if classes[row] == "-":
                print(*row, sep="\t")
        return
    with open(args.out or args.listing, "w", encoding="utf-8") as f:
        print(f"# kernels of vLLM {args.version} (Apache-2.0) by source path; made by scripts/vllm-kernel-classes.py", file=f)
        for kind, name, path in rows:
            print(kind, name, classes[kind, name, path], path, sep="\t", file=f)
    count = collections.Counter(classes.values())
    print(f"{len(rows)} kernels, {count['-']} undecided", file=sys.stderr)
    for cls, n in count.most_common():
        print(f"{n:5} {cls}", file=sys.stderr)


if __name__ == "__main__":
    main()
