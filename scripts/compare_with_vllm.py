#!/usr/bin/env python3
"""Compare the result files that real-vllm.sh left: linktax against `vllm bench serve`.

The bounds are about agreement, never about speed:

* output tokens: equal, and as many as were asked for. Both take them from the server's usage.
* TPOT (mean): within 35 %. Both define it the same way; what differs is how busy the machine was.
* TTFT (mean): linktax not more than 50 % or 5 ms above the other, whichever is larger. It has no
  lower bound: the Python client adds time of its own to the first token, most of it when several
  requests start together.
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


def faults(ours, theirs, requests, output_len):
    """What is out of bounds, as sentences."""
    for key, expected in [("completed", requests), ("total_output_tokens", requests * output_len)]:
        for name, result in [("linktax", ours), ("vllm bench serve", theirs)]:
            if result[key] != expected:
                yield f"{key} of {name} is {result[key]}, expected {expected}"
    tpot = ours["mean_tpot_ms"] / theirs["mean_tpot_ms"]
    if abs(tpot - 1) > TPOT_SHARE:
        yield f"mean TPOT is {tpot:.2f} times the other's, more than {TPOT_SHARE:.0%} away"
    excess = ours["mean_ttft_ms"] - theirs["mean_ttft_ms"]
    if excess > max(TTFT_SHARE * theirs["mean_ttft_ms"], TTFT_MS):
        yield f"mean TTFT is {excess:.1f} ms above the other's {theirs['mean_ttft_ms']:.1f} ms"


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
                for fault in faults(ours, theirs, c * args.requests_per_wave, args.output_len)]
    for fault in bad:
        print("OUT OF BOUNDS", fault)
    print("out of bounds" if bad else "within bounds")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
