#!/usr/bin/env python3
"""Write a tiny causal language model with random weights and a byte-level BPE tokenizer.

    make_tiny_model.py OUT_DIR

Nothing is downloaded. The tokenizer is trained on the Python standard library's own sources, so
the files are the same for the same library versions. Needs `tokenizers` and `numpy`, both of
which vLLM depends on.
"""

import glob
import json
import os
import struct
import sys
import sysconfig

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS, HIDDEN, FFN, VOCAB, MAX_LEN, SEED = 2, 128, 256, 4096, 8192, 0
HEADS, KV_HEADS = 4, 2
HEAD_DIM = HIDDEN // HEADS  # the CPU attention kernel wants 32, 64, 80, 96, 112, 128, ...
PAD, BOS, EOS, START, END = SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]  # for reasoning and tool parsers
CHAT_TEMPLATE = (
    "{%- for m in messages -%}"
    "{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def train_tokenizer():
    sources = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:120]
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL + MARKERS,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train(sources, trainer)
    return tokenizer


def write_json(out, name, value):
    with open(os.path.join(out, name), "w") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)


def write_configs(out, ids):
    write_json(out, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS, "eos_token": EOS, "pad_token": PAD,
        "additional_special_tokens": [START, END],
        "add_bos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_LEN, "chat_template": CHAT_TEMPLATE,
    })
    write_json(out, "special_tokens_map.json",
               {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD})
    write_json(out, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCAB, "max_position_embeddings": MAX_LEN,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "bos_token_id": ids[BOS], "eos_token_id": ids[EOS], "pad_token_id": ids[PAD],
        "torch_dtype": "bfloat16", "initializer_range": 0.02, "use_cache": True,
    })
    write_json(out, "generation_config.json", {
        "bos_token_id": ids[BOS], "eos_token_id": [ids[EOS], ids[END]], "pad_token_id": ids[PAD],
    })


def random_weights():
    rng = np.random.default_rng(SEED)

    def normal(*shape, scale=0.05):
        return rng.standard_normal(shape, dtype=np.float32) * scale

    tensors = {
        "model.embed_tokens.weight": normal(VOCAB, HIDDEN, scale=1.0),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": normal(VOCAB, HIDDEN, scale=0.2),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "self_attn.q_proj.weight"] = normal(HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.k_proj.weight"] = normal(KV_HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.v_proj.weight"] = normal(KV_HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.o_proj.weight"] = normal(HIDDEN, HEADS * HEAD_DIM)
        tensors[prefix + "mlp.gate_proj.weight"] = normal(FFN, HIDDEN)
        tensors[prefix + "mlp.up_proj.weight"] = normal(FFN, HIDDEN)
        tensors[prefix + "mlp.down_proj.weight"] = normal(HIDDEN, FFN)
        tensors[prefix + "input_layernorm.weight"] = np.ones(HIDDEN, np.float32)
        tensors[prefix + "post_attention_layernorm.weight"] = np.ones(HIDDEN, np.float32)
    return tensors


def write_safetensors(path, tensors):
    """bfloat16 by hand: numpy has no such type."""
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        bits = tensor.view(np.uint32)
        to_even = 0x7FFF + ((bits >> 16) & 1)
        blob = ((bits + to_even) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)],
        }
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    tokenizer = train_tokenizer()
    tokenizer.save(os.path.join(out, "tokenizer.json"))
    write_configs(out, {name: tokenizer.token_to_id(name) for name in SPECIAL})
    tensors = random_weights()
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)
    parameters = sum(tensor.size for tensor in tensors.values())
    print(f"{out}: vocabulary {tokenizer.get_vocab_size()}, {parameters / 1e6:.2f} M parameters")


if __name__ == "__main__":
    main()
