#!/usr/bin/env python3
"""Run several load generators against one mock server and print how they compare.

Started by bench-client.sh, which says what is compared. CPU time is that of the whole client process
and its children (user + system), with a run of one request of one token taken off: what start-up
costs is not what an event costs, and Python's start-up would drown everything else. Both figures go
into the JSON file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

INPUT_LEN, OUTPUT_LEN = 128, 128
TTFT_MS, STEP_MS = 50, 10
MODEL = "mock"
MOCK_CORE, CLIENT_CORE = 0, 1


class Linktax:
    name = "linktax"

    def __init__(self, args):
        self.binary = args.linktax

    def command(self, url, folder, concurrency, requests, output_len):
        return [self.binary, "bench", "--base-url", url, "--model", MODEL, "--endpoint", "completions",
                "--concurrency", str(concurrency), "--requests", str(requests),
                "--input-len", str(INPUT_LEN), "--output-len", str(output_len),
                "--num-warmups", "0", "--quiet", "--out", os.path.join(folder, "run")]

    def ttft_p50_ms(self, folder, _stdout):
        with open(os.path.join(folder, "run", "run.json")) as f:
            return json.load(f)["cells"][0]["results"]["median_ttft_ms"]


class Floor:
    name = "floor"

    def __init__(self, args):
        self.binary = args.floor

    def command(self, url, _folder, concurrency, requests, output_len):
        return [self.binary, "--addr", url.removeprefix("http://"), "--model", MODEL,
                "--concurrency", str(concurrency), "--requests", str(requests),
                "--input-len", str(INPUT_LEN), "--output-len", str(output_len)]

    def ttft_p50_ms(self, _folder, stdout):
        return json.loads(stdout)["ttft_p50_ms"]


class VllmClient:
    """`vllm bench serve` and `vllm-rs bench serve` have the same flags and result files."""

    def command(self, url, folder, concurrency, requests, output_len):
        return [self.binary, "bench", "serve", "--backend", "openai", "--base-url", url,
                "--endpoint", "/v1/completions", "--model", MODEL, "--tokenizer", self.tokenizer,
                "--dataset-name", "random", "--random-input-len", str(INPUT_LEN),
                "--random-output-len", str(output_len), "--ignore-eos",
                "--num-prompts", str(requests), "--max-concurrency", str(concurrency),
                "--disable-tqdm", "--save-result", "--result-dir", folder,
                "--result-filename", "result.json", *self.extra]

    def ttft_p50_ms(self, folder, _stdout):
        with open(os.path.join(folder, "result.json")) as f:
            return json.load(f)["median_ttft_ms"]


class VllmRs(VllmClient):
    name = "vllm-rs"
    extra = ["--prompt-token-ids"]

    def __init__(self, args):
        self.binary = args.vllm_rs
        self.tokenizer = os.path.join(args.vllm_home, "model")


class VllmPython(VllmClient):
    name = "vllm-python"
    extra = []

    def __init__(self, args):
        self.binary = os.path.join(args.vllm_home, "venv", "bin", "vllm")
        self.tokenizer = os.path.join(args.vllm_home, "model")


def pinned(core, command):
    return ["taskset", "-c", str(core), *command]


def start_mock(linktax):
    command = [linktax, "mock", "--port", "0", "--mode", "per_request",
               "--ttft-ms", str(TTFT_MS), "--step-ms", str(STEP_MS)]
    mock = subprocess.Popen(pinned(MOCK_CORE, command), stdout=subprocess.PIPE, text=True)
    line = mock.stdout.readline()
    if "http://" not in line:
        mock.kill()
        sys.exit(f"the mock server did not start: {line!r}")
    return mock, line[line.index("http://"):].strip()


def run(client, url, concurrency, requests, output_len):
    """One run on the client core: CPU seconds of the process tree, wall seconds, TTFT p50."""
    env = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
               CUDA_VISIBLE_DEVICES="")
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "stdout")
        command = pinned(CLIENT_CORE, client.command(url, folder, concurrency, requests, output_len))
        with open(log, "w") as out, open(os.path.join(folder, "stderr"), "w") as err:
            began = time.monotonic()
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env)
            _, status, usage = os.wait4(child.pid, 0)
            wall = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        # linktax exits with 1 when it measured but flagged a cell: the figures are there all the same.
        if child.returncode != 0 and not (client.name == "linktax" and child.returncode == 1):
            with open(os.path.join(folder, "stderr")) as f:
                sys.exit(f"{client.name} failed with {child.returncode}: {' '.join(command)}\n{f.read()}")
        with open(log) as f:
            ttft = client.ttft_p50_ms(folder, f.read())
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall, "ttft_p50_ms": ttft,
            "max_rss_bytes": usage.ru_maxrss * 1024, "exit_code": child.returncode}


def measure(clients, url, concurrencies, waves, repeats):
    """Medians by concurrency and client; the clients take turns within a repeat."""
    startup = {client.name: statistics.median(run(client, url, 1, 1, 1)["cpu_s"] for _ in range(repeats))
               for client in clients}
    rows = []
    for concurrency in concurrencies:
        requests = waves * concurrency
        tokens = requests * OUTPUT_LEN
        runs = {client.name: [] for client in clients}
        for repeat in range(repeats):
            for client in clients:
                print(f"C={concurrency} repeat {repeat + 1}/{repeats}: {client.name}", file=sys.stderr)
                runs[client.name].append(run(client, url, concurrency, requests, OUTPUT_LEN))
        for name, results in runs.items():
            middle = {key: statistics.median(r[key] for r in results) for key in results[0]}
            rows.append({
                "concurrency": concurrency, "client": name, "requests": requests, "tokens": tokens,
                "ttft_p50_ms": middle["ttft_p50_ms"],
                "ttft_p50_error_ms": middle["ttft_p50_ms"] - TTFT_MS,
                "cpu_us_per_event": (middle["cpu_s"] - startup[name]) / tokens * 1e6,
                "cpu_us_per_event_with_startup": middle["cpu_s"] / tokens * 1e6,
                "startup_cpu_s": startup[name],
                "wall_s": middle["wall_s"], "max_rss_bytes": middle["max_rss_bytes"],
                "runs": results,
            })
    return rows


def print_table(rows):
    print(f"\nTTFT truth {TTFT_MS} ms, step {STEP_MS} ms, {OUTPUT_LEN} tokens a request; medians\n")
    print(f"{'C':>4}  {'client':<12} {'TTFT p50 ms':>11} {'error ms':>9} {'CPU us/event':>12} "
          f"{'linktax/this':>12} {'max RSS MB':>10} {'wall s':>7}")
    ours = {r["concurrency"]: r["cpu_us_per_event"] for r in rows if r["client"] == Linktax.name}
    for r in rows:
        ratio = ours[r["concurrency"]] / r["cpu_us_per_event"]
        r["linktax_cpu_ratio"] = ratio
        print(f"{r['concurrency']:>4}  {r['client']:<12} {r['ttft_p50_ms']:>11.2f} "
              f"{r['ttft_p50_error_ms']:>9.2f} {r['cpu_us_per_event']:>12.2f} {ratio:>12.2f} "
              f"{r['max_rss_bytes'] / 1e6:>10.0f} {r['wall_s']:>7.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--linktax", required=True)
    parser.add_argument("--floor", required=True)
    parser.add_argument("--vllm-rs", default="")
    parser.add_argument("--vllm-home", required=True)
    parser.add_argument("--concurrency", default="16 128 512")
    parser.add_argument("--waves", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", default="bench-client.json")
    args = parser.parse_args()

    clients = [Linktax(args), Floor(args)]
    if os.path.isdir(os.path.join(args.vllm_home, "model")):  # both need its tokenizer
        if args.vllm_rs:
            clients.append(VllmRs(args))
        clients.append(VllmPython(args))
    mock, url = start_mock(args.linktax)
    try:
        concurrencies = [int(c) for c in args.concurrency.split()]
        rows = measure(clients, url, concurrencies, args.waves, args.repeats)
    finally:
        mock.terminate()
        mock.wait()
    print_table(rows)
    with open(args.json, "w") as f:
        json.dump({"ttft_ms": TTFT_MS, "step_ms": STEP_MS, "output_len": OUTPUT_LEN,
                   "input_len": INPUT_LEN, "waves": args.waves, "repeats": args.repeats,
                   "rows": rows}, f, indent=2)
    print(f"\nresults: {args.json}")


if __name__ == "__main__":
    main()
