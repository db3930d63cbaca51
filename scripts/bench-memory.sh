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

code=0
"$linktax" bench --base-url "$url" --model mock --endpoint completions --concurrency "$concurrency" \
  --input-len 128 --output-len 128 --duration "$seconds" --out "$work/run" || code=$?
((code <= 1)) || { echo "linktax bench failed with $code" >&2; exit 1; }

python3 - "$work/run/run.json" "$seconds" "$concurrency" <<'PY'
import json, sys
path, seconds, concurrency = sys.argv[1:]
limit = 300e6
with open(path) as f:
    client = json.load(f)["cells"][0]["client"]
rss, events = client["max_rss_bytes"], client["events"]
verdict = "within" if rss <= limit else "ABOVE"
print(f"{seconds} s at C={concurrency}: {events} events, peak memory {rss / 1e6:.0f} MB, "
      f"{verdict} the limit of {limit / 1e6:.0f} MB ({rss / limit:.2f} of it)")
sys.exit(rss > limit)
PY
