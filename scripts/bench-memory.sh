#!/usr/bin/env bash
# bench-memory.sh [SECONDS] [CONCURRENCY]
#   Peak memory of `linktax bench` over a long run (default 600 s at 256 requests in flight) against its
#   own mock server. Exit code 1 above the limit of 300 MB.
#   LINKTAX_BIN  binary to use (default: the lean release build)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
seconds=${1:-600}
concurrency=${2:-256}
linktax=$("$here/build-lean.sh")

work=$(mktemp -d)
mock=
stop() {
  [[ -z $mock ]] || kill "$mock" 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM
"$linktax" mock --port 0 --mode engine --ttft-ms 50 --step-ms 10 > "$work/mock" &
mock=$!
for _ in {1..100}; do
  [[ ! -s $work/mock ]] || break
  kill -0 "$mock" || { echo "the mock server did not start" >&2; exit 1; }
  sleep 0.1
done
url=$(grep -o 'http://[^ ]*' "$work/mock")

# The peak is the kernel's own figure for the whole process, the summary at the end included.
python3 - "$linktax" "$url" "$seconds" "$concurrency" "$work/run" <<'PY'
import json, resource, subprocess, sys
linktax, url, seconds, concurrency, out = sys.argv[1:]
limit = 300e6
code = subprocess.run([
    linktax, "bench", "--base-url", url, "--model", "mock", "--endpoint", "completions",
    "--concurrency", concurrency, "--input-len", "128", "--output-len", "128",
    "--duration", seconds, "--out", out], stdout=subprocess.DEVNULL).returncode
if code > 1:
    sys.exit(f"linktax bench failed with {code}")
with open(out + "/run.json") as f:
    cell = json.load(f)["cells"][0]
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(f"{seconds} s at {concurrency} requests in flight: {cell['client']['events']} events, "
      f"peak memory {peak / 1e6:.0f} MB, {peak / limit:.2f} of the limit of {limit / 1e6:.0f} MB")
sys.exit(peak > limit)
PY
