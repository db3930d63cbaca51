#!/usr/bin/env python3
"""A decode loop in plain PyTorch with the shape of Qwen3-4B, to be captured by Nsight Systems.

Real torch modules with random weights: 36 layers, hidden 2560, 32 query and 8 key/value heads of 128, bf16. Each of the
16 sequences attends over a full window of cached tokens; the caches start with random values, no prefill runs. One step
is embedding, layers, output projection and argmax, recorded once as a CUDA graph and replayed.

Between cudaProfilerStart and cudaProfilerStop run 40 replays, each in an NVTX range `decode_step N`, and 5 steps without
the graph in `eager_step N`. The same number of replays is timed before, so that the profiler's cost can be told.

The last line on stdout is one JSON object. Exit code 1: the loop computed nonsense.

Without a GPU (to check the program, not to measure):
    scripts/torch_decode_loop.py --device cpu --layers 2 --hidden 64 --heads 4 --kv-heads 2 --head-dim 16 \
        --intermediate 128 --vocab 256 --batch 2 --context 16 --steps 3 --eager-steps 1
"""

import argparse
import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WARMUP_STEPS = 3
# Flash attention first: it is what a server would run; the others where a device lacks it.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Cache:
    """Keys and values of one layer: a ring of `context` slots a sequence."""

    def __init__(self, args, options):
        shape = (args.batch, args.kv_heads, args.context, args.head_dim)
        self.keys = torch.randn(shape, **options)
        self.values = torch.randn(shape, **options)

    def append(self, slot, key, value):
        self.keys.index_copy_(2, slot, key)
        self.values.index_copy_(2, slot, value)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, args, options):
        super().__init__()
        self.heads, self.kv_heads, self.dim = args.heads, args.kv_heads, args.head_dim
        width = (args.heads + 2 * args.kv_heads) * args.head_dim
        self.qkv = nn.Linear(args.hidden, width, bias=False, **options)
        self.out = nn.Linear(args.heads * args.head_dim, args.hidden, bias=False, **options)
        self.query_norm = nn.RMSNorm(args.head_dim, **options)
        self.key_norm = nn.RMSNorm(args.head_dim, **options)

    def forward(self, x, cache, slot, cos, sin):
        batch = x.shape[0]
        parts = [self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim]
        query, key, value = (
            part.view(batch, 1, -1, self.dim).transpose(1, 2)
            for part in self.qkv(x).split(parts, dim=-1))
        query = rotate(self.query_norm(query), cos, sin)
        key = rotate(self.key_norm(key), cos, sin)
        cache.append(slot, key, value)
        # The whole ring is valid, so no mask is needed, and flash attention can run.
        out = F.scaled_dot_product_attention(query, cache.keys, cache.values, enable_gqa=True)
        return self.out(out.transpose(1, 2).reshape(batch, 1, -1))


class Layer(nn.Module):
    def __init__(self, args, options):
        super().__init__()
        self.attention_norm = nn.RMSNorm(args.hidden, **options)
        self.attention = Attention(args, options)
        self.mlp_norm = nn.RMSNorm(args.hidden, **options)
        self.gate_up = nn.Linear(args.hidden, 2 * args.intermediate, bias=False, **options)
        self.down = nn.Linear(args.intermediate, args.hidden, bias=False, **options)

    def forward(self, x, cache, slot, cos, sin):
        x = x + self.attention(self.attention_norm(x), cache, slot, cos, sin)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """All state of a step lives on the device, so that a replay needs nothing from the host."""

    def __init__(self, args, options):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab, args.hidden, **options)
        self.layers = nn.ModuleList(Layer(args, options) for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.hidden, **options)
        self.head = nn.Linear(args.hidden, args.vocab, bias=False, **options)
        self.caches = [Cache(args, options) for _ in range(args.layers)]
        device = options["device"]
        self.tokens = torch.randint(args.vocab, (args.batch, 1), device=device)
        self.position = torch.full((1,), args.context, device=device)
        self.context = args.context
        exponents = torch.arange(args.head_dim // 2, device=device) / (args.head_dim // 2)
        # Positions of the timed, captured and spare steps: a table, as servers have it.
        positions = torch.arange(2 * args.context + 4 * (args.steps + args.eager_steps) + 64, device=device)
        angles = positions[:, None] * (1e6 ** -exponents)
        self.cos, self.sin = angles.cos().to(options["dtype"]), angles.sin().to(options["dtype"])

    def step(self):
        slot = self.position % self.context
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        x = self.embedding(self.tokens)
        for layer, cache in zip(self.layers, self.caches):
            x = layer(x, cache, slot, cos, sin)
        logits = self.head(self.norm(x))
        self.tokens.copy_(logits.argmax(dim=-1))
        self.position.add_(1)
        return logits


class Host:
    """The part of a server that takes each step's tokens: one step late, so that the next launch is not waited for."""

    def __init__(self, decoder, cuda):
        self.decoder, self.cuda = decoder, cuda
        self.buffers = [torch.empty(decoder.tokens.shape, dtype=torch.int64, pin_memory=cuda) for _ in range(2)]
        self.copied = [torch.cuda.Event() for _ in self.buffers] if cuda else []
        self.step = 0

    def receive(self):
        """Starts the copy of this step's tokens, then waits for the step before."""
        this, last = self.step % 2, (self.step + 1) % 2
        self.buffers[this].copy_(self.decoder.tokens, non_blocking=self.cuda)
        if self.cuda:
            self.copied[this].record()
            if self.step:
                self.copied[last].synchronize()
        self.step += 1

    def finish(self):
        """Waits for all steps; the tokens of the last one."""
        if self.cuda:
            torch.cuda.synchronize()
        return self.buffers[(self.step + 1) % 2].flatten().tolist()


@contextlib.contextmanager
def profiled(cuda):
    if not cuda:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    yield
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def mark(name, cuda):
    return torch.cuda.nvtx.range(name) if cuda else contextlib.nullcontext()


def timed(steps, name, run, host, cuda):
    """Mean milliseconds of a step, on the host's clock."""
    host.finish()
    began = time.perf_counter()
    for number in range(steps):
        with mark(f"{name} {number}", cuda):
            run()
        host.receive()
    host.finish()
    return round((time.perf_counter() - began) * 1e3 / steps, 3) if steps else None


def record(decoder):
    """The step as a CUDA graph. Warm-up on a side stream, as torch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUP_STEPS):
            decoder.step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = decoder.step()
    return graph, logits


def check(decoder, logits, args):
    """Nonsense would be profiled as happily as a model."""
    if not torch.isfinite(logits).all():
        sys.exit("the logits are not finite")
    if not bool(((decoder.tokens >= 0) & (decoder.tokens < args.vocab)).all()):
        sys.exit("a token is outside the vocabulary")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    for name, default in [("layers", 36), ("hidden", 2560), ("heads", 32), ("kv-heads", 8), ("head-dim", 128),
                          ("intermediate", 9728), ("vocab", 151936), ("batch", 16), ("context", 2048),
                          ("steps", 40), ("eager-steps", 5), ("seed", 0)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --device cpu checks the program without one")
    if args.heads % args.kv_heads or args.head_dim % 2:
        parser.error("--heads must be a multiple of --kv-heads, --head-dim even")
    if args.context < 1 or args.steps < 1:
        parser.error("--context and --steps must be at least 1")
    return args


@torch.inference_mode()
def main():
    args = parse()
    cuda = args.device == "cuda"
    torch.manual_seed(args.seed)
    decoder = Decoder(args, {"device": args.device, "dtype": torch.bfloat16})
    host = Host(decoder, cuda)
    with sdpa_kernel(BACKENDS, set_priority=True):
        if cuda:
            graph, logits = record(decoder)
            run = graph.replay
        else:
            logits, run = decoder.step(), decoder.step
        timed(WARMUP_STEPS, "warmup", run, host, cuda)
        before = timed(args.steps, "unprofiled", run, host, cuda)
        with profiled(cuda):
            inside = timed(args.steps, "decode_step", run, host, cuda)
            eager = timed(args.eager_steps, "eager_step", decoder.step, host, cuda)
    check(decoder, logits, args)
    result = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "layers": args.layers, "batch": args.batch, "context": args.context, "steps": args.steps,
        "eager_steps": args.eager_steps,
        "parameters": sum(p.numel() for p in decoder.parameters()),
        "mean_step_ms_before_capture": before, "mean_step_ms_in_capture": inside,
        "mean_eager_step_ms_in_capture": eager,
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "last_tokens": host.finish(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
