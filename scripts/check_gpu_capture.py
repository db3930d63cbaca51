#!/usr/bin/env python3
"""Hold what gpu-capture.sh left against what must be in it.

    scripts/check_gpu_capture.py FOLDER LOOP_OUTPUT

* node-steps.json: every replay of the loop is a decode step, every eager step is found, the parts of each step sum to
  it to the nanosecond, and at most 2 % of the busy time has no class.
* node-kernels.json: counts and sums equal NVIDIA's own (node-kern-sum.csv), kernel by kernel. Left out, and said so,
  where `nsys stats` could not run.

LOOP_OUTPUT holds the JSON line of torch_decode_loop.py. Exit code 1: a difference, which is printed.
"""

import collections
import csv
import json
import os
import statistics
import sys

PARTS = ["linear_ns", "attention_ns", "ssm_ns", "moe_ns", "communication_ns", "other_ns", "unknown_ns", "graph_ns",
         "copies_ns", "idle_ns"]
UNKNOWN_LIMIT = 0.02


def load(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def loop_result(path):
    with open(path) as f:
        for line in f:
            if line.startswith("{"):
                return json.loads(line)
    sys.exit(f"{path}: no JSON line of the loop")


def check_steps(steps, loop):
    problems = []
    kinds = collections.Counter(step["kind"] for step in steps)
    decode = [step for step in steps if step["kind"] == "decode"]
    if len(decode) != loop["steps"]:
        problems.append(f"{len(decode)} decode steps, the loop made {loop['steps']}")
    if len(steps) != loop["steps"] + loop["eager_steps"]:
        problems.append(f"{len(steps)} steps, the loop made {loop['steps']} and {loop['eager_steps']} eager ones")
    for step in steps:
        parts = sum(step[part] or 0 for part in PARTS)
        if parts != step["dur_ns"]:
            problems.append(f"step {step['step']}: the parts sum to {parts} ns, the step has {step['dur_ns']}")
    print("steps:", dict(kinds), "found by", sorted({str(step["method"]) for step in steps}))
    for part in ["dur_ns"] + PARTS:
        median = statistics.median(step[part] or 0 for step in decode) if decode else 0
        if median:
            print(f"  decode, median {part}: {median / 1e6:.3f} ms")
    busy = sum(step["dur_ns"] - (step["idle_ns"] or 0) for step in steps)
    unknown = sum(step["unknown_ns"] or 0 for step in steps)
    if unknown > busy * UNKNOWN_LIMIT:
        problems.append(f"{unknown / busy:.1%} of the busy time are kernels without a class")
    for key in ("mean_step_ms_before_capture", "mean_step_ms_in_capture"):
        if key in loop:
            print(f"  the loop without nsys, {key}: {loop[key]} ms")
    return problems


def check_kernels(kernels, path):
    ours = collections.defaultdict(lambda: [0, 0])
    for kernel in kernels:
        ours[kernel["name"]][0] += kernel["count"]
        ours[kernel["name"]][1] += kernel["total_ns"]
    theirs = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            theirs[row["Name"]] = [int(row["Instances"]), int(row["Total Time (ns)"])]
    problems = [f"{name[:100]}: (count, ns) {ours.get(name)}, nsys stats has {theirs.get(name)}"
                for name in sorted(set(ours) | set(theirs)) if ours.get(name) != theirs.get(name)]
    total = sum(ns for _, ns in theirs.values())
    print(f"kernels: {len(theirs)} names, {sum(n for n, _ in theirs.values())} instances, {total / 1e6:.3f} ms by nsys "
          f"stats; {len(problems)} differences")
    return problems


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: check_gpu_capture.py FOLDER LOOP_OUTPUT")
    folder, loop = sys.argv[1], loop_result(sys.argv[2])
    problems = check_steps(load(folder, "node-steps.json"), loop)
    reference = os.path.join(folder, "node-kern-sum.csv")
    if os.path.exists(reference):
        problems += check_kernels(load(folder, "node-kernels.json"), reference)
    else:
        print("kernels: not compared, there is no nsys stats here")
    for problem in problems:
        print("DIFFERENT:", problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
