#!/usr/bin/env python3
"""Compare the result files that real-vllm.sh left: linktax against `vllm bench serve`.

The bounds are about agreement, never about speed:

* output tokens: equal, and as many as were asked for. Both take them from the server's usage.
* TPOT (mean): within 35 %. Both define it the same way; what differs is how busy the machine was.
* TTFT (mean): linktax not more than 50 % or 5 ms above the other, whichever is larger. It has no
  lower bound: the Python client adds time of its own to the first token, most of it when several
  requests start together.

Two clients never meet the server in the same state, and on two shared cores a ratio of 1.36 was seen
between sound runs. Times out of these bounds are therefore pointed out; what fails is a count that is
off, or a time more than three times away, which no busy machine explains away (a wrong unit, chunks
taken for tokens, waiting taken for decoding).
"""

import argparse
import glob
import json
import os
import statistics
import sys

TPOT_SHARE = 0.35
TTFT_SHARE = 0.50
TTFT_MS = 5.0
FAIL_FACTOR = 3.0
KEYS = ["completed", "total_input_tokens", "total_output_tokens", "output_throughput",
        "mean_ttft_ms", "mean_tpot_ms"]


def load_linktax(folder):
    with open(os.path.join(folder, "run.json")) as f:
        return json.load(f)["cells"][0]["results"]


def load_vllm(path):
    with open(path) as f:
        return json.load(f)


def medians(results):
    return {key: statistics.median(result[key] for result in results) for key in KEYS}


def miscounts(ours, theirs, requests, output_len):
    """Counts that are off, as sentences."""
    for key, expected in [("completed", requests), ("total_output_tokens", requests * output_len)]:
        for name, result in [("linktax", ours), ("vllm bench serve", theirs)]:
            if result[key] != expected:
                yield f"{key} of {name} is {result[key]}, expected {expected}"


def distances(ours, theirs):
    """(is a failure, sentence) for each time that is out of its bounds."""
    tpot = ours["mean_tpot_ms"] / theirs["mean_tpot_ms"]
    if abs(tpot - 1) > TPOT_SHARE:
        failed = not 1 / FAIL_FACTOR < tpot < FAIL_FACTOR
        yield failed, f"mean TPOT is {tpot:.2f} times the other's, more than {TPOT_SHARE:.0%} away"
    excess = ours["mean_ttft_ms"] - theirs["mean_ttft_ms"]
    if excess > max(TTFT_SHARE * theirs["mean_ttft_ms"], TTFT_MS):
        failed = excess > max((FAIL_FACTOR - 1) * theirs["mean_ttft_ms"], FAIL_FACTOR * TTFT_MS)
        yield failed, f"mean TTFT is {excess:.1f} ms above the other's {theirs['mean_ttft_ms']:.1f} ms"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--concurrency", type=int, nargs="+", required=True)
    parser.add_argument("--requests-per-wave", type=int, required=True)
    parser.add_argument("--output-len", type=int, required=True)
    args = parser.parse_args()

    bad = []
    print(f"{'C':>3}  {'median of the rounds':<20} {'linktax':>12} {'vllm bench':>12} {'ratio':>7}")
    for c in args.concurrency:
        paths = glob.glob(os.path.join(args.folder, f"linktax-c{c}-*"))
        ours = medians([load_linktax(path) for path in sorted(paths)])
        paths = glob.glob(os.path.join(args.folder, f"vllm-c{c}-*.json"))
        theirs = medians([load_vllm(path) for path in sorted(paths)])
        for key in KEYS:
            ratio = ours[key] / theirs[key] if theirs[key] else float("nan")
            print(f"{c:>3}  {key:<20} {ours[key]:>12.2f} {theirs[key]:>12.2f} {ratio:>7.2f}")
        bad += [f"C={c}: {fault}"
                for fault in miscounts(ours, theirs, c * args.requests_per_wave, args.output_len)]
        for failed, fault in distances(ours, theirs):
            print(f"OUT OF BOUNDS C={c}: {fault}")
            bad += [f"C={c}: {fault}"] if failed else []
    for fault in bad:
        print("FAILED", fault)
    print("failed" if bad else "counts agree, and no time is far away")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
