#!/usr/bin/env bash
# capture-vllm.sh [--dry-run] MODEL [vllm serve options...]
#   On a GPU host, from a model to the split of its decode steps: starts vLLM under Nsight Systems, drives it with
#   `linktax bench --profile` (one capture a cell, taken while all requests are decoding), stops it, exports the
#   captures to SQLite and runs `linktax trace doctor` and `linktax trace split` on them.
#   docs/guide/capture.md says what each option is for, and what to do where this script does not fit.
#     scripts/capture-vllm.sh Qwen/Qwen3-4B
#     CONCURRENCY=2,8 INPUT_LEN=32768 scripts/capture-vllm.sh MODEL --tensor-parallel-size 2
#   --dry-run prints the commands and runs none.
#   Exit code: 0 captures that can be split; 1 something failed or is not clean (the reason is printed); 2 bad usage.
#   CONCURRENCY, INPUT_LEN, OUTPUT_LEN   the load (default 16, 1024, 512); lists make several cells and captures.
#                   OUTPUT_LEN steps must last longer than PROFILE_FOR.
#   PROFILE_FOR     length of each capture (default 2s: 100 to 400 decode steps)
#   GRAPH_TRACE     node (default) shows the kernels inside CUDA graphs; graph gives undisturbed times and no split
#   PORT            (default 8000)
#   OUT             where everything goes (default runs/capture-<time>)
#   HEALTH_LIMIT    seconds until the server must answer (default 1800: large models load slowly)
#   STOP_LIMIT      seconds that nsys gets to write its last report (default 180; 60 is the least for two GPUs)
#   NSYS, VLLM, LINKTAX_BIN   the programs, if not on the PATH (linktax: built here)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { echo "usage: capture-vllm.sh [--dry-run] MODEL [vllm serve options...]" >&2; exit 2; }
fail() { echo "capture-vllm.sh: $*" >&2; exit 1; }
warn() { echo "capture-vllm.sh: warning: $*" >&2; }
say() { echo "== $*" >&2; }

dry=
case ${1:-} in
  --dry-run) dry=1; shift ;;
  -h | --help) awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
esac
[[ $# -gt 0 && $1 != -* ]] || usage
model=$1
shift
for word in "$@"; do
  case $word in
    --port | --port=* | --host | --host=*)
      echo "capture-vllm.sh: the server listens on 127.0.0.1; set PORT instead of $word" >&2; exit 2 ;;
    --profiler-config*)
      echo "capture-vllm.sh: $word is set by this script" >&2; exit 2 ;;
  esac
done

port=${PORT:-8000}
out=${OUT:-runs/capture-$(date +%Y%m%d-%H%M%S)}
graph_trace=${GRAPH_TRACE:-node}
[[ $graph_trace == node || $graph_trace == graph ]] ||
  { echo "capture-vllm.sh: GRAPH_TRACE is node or graph, not $graph_trace" >&2; exit 2; }

# nsys is often installed without being on the PATH; Nsight Compute brings a copy of its own.
find_nsys() {
  local candidate
  if [[ -n ${NSYS:-} ]]; then echo "$NSYS"; return; fi
  command -v nsys && return
  for candidate in /opt/nvidia/nsight-systems*/*/bin/nsys /usr/local/cuda*/bin/nsys \
    /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys; do
    [[ ! -x $candidate ]] || { echo "$candidate"; return; }
  done
  return 1
}

find_linktax() {
  if [[ -n ${LINKTAX_BIN:-} ]]; then realpath "$LINKTAX_BIN"; return; fi
  command -v linktax && return
  (cd "$here/.." && cargo build --locked --release --package linktax --no-default-features --features bench,trace >&2)
  realpath "${CARGO_TARGET_DIR:-$here/../target}/release/linktax"
}

# CUDA toolkits ship an nsys made for their driver branch. An older nsys on a newer driver can lose every kernel inside
# a CUDA graph without a word.
check_driver() {
  local driver version newest=
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || return 0
  [[ $("$nsys" --version) =~ [0-9]{4}\.[0-9]+ ]] || return 0
  version=${BASH_REMATCH[0]}
  case ${driver%%.*} in
    '' | *[!0-9]* | [0-9] | [0-9][0-9] | [1-4][0-9][0-9] | 5[0-4][0-9]) return 0 ;;
    55[0-9]) newest=2023.4 ;;
    56[0-9]) newest=2024.5 ;;
    57[0-9]) newest=2024.6 ;;
    *) newest=2025.3 ;;
  esac
  [[ $(printf '%s\n%s\n' "$version" "$newest" | sort -V | head -n 1) == "$newest" ]] ||
    warn "nsys $version is older than driver $driver (its CUDA toolkit came with $newest): CUDA graphs may leave no rows"
}

check_tools() {
  nsys=$(find_nsys) || fail "there is no nsys: install nsight-systems-cli, or set NSYS (docs/guide/capture.md)"
  vllm=${VLLM:-vllm}
  command -v "$vllm" >/dev/null || fail "there is no $vllm: install vLLM, or set VLLM"
  command -v curl >/dev/null || fail "there is no curl"
  linktax=$(find_linktax) || fail "linktax could not be built; set LINKTAX_BIN"
  "$linktax" trace --help >/dev/null 2>&1 || fail "$linktax was built without the feature trace"
  ! curl -s --noproxy '*' -o /dev/null "http://127.0.0.1:$port/health" ||
    fail "something answers on port $port already; set PORT"
  check_driver
}

# What of the recipe this nsys knows.
nsys_options() {
  options=("--trace=cuda,nvtx" --sample=none --cpuctxsw=none "--cuda-graph-trace=$graph_trace"
    --capture-range=cudaProfilerApi --capture-range-end=repeat
    --trace-fork-before-exec=true --force-overwrite=true)
  if [[ -n $dry || $("$nsys" profile --help 2>&1) == *--discard-environment* ]]; then
    options+=(--discard-environment=true)
  else
    warn "this nsys writes all environment variables into its report: use \`linktax trace scrub\` before sharing it"
  fi
}

# A command as one could type it.
quoted() {
  local word words=()
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,%+@-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    words+=("$word")
  done
  echo "${words[*]}"
}

# Prints a command, and runs it unless this is a dry run.
run() {
  printf '+ %s\n' "$(quoted "$@")" >&2
  [[ -n $dry ]] || "$@"
}

server=""
pid_file=""
# vLLM by its own process id, so that nsys sees it end and writes its report: a killed worker leaves a .qdstrm that
# nothing can read.
stop_server() {
  [[ -n $server ]] || return 0
  local began=$SECONDS pid
  pid=$(cat "$pid_file" 2>/dev/null) || pid=
  [[ -z $pid ]] || kill -TERM "$pid" 2>/dev/null || true
  while kill -0 "$server" 2>/dev/null; do
    if ((SECONDS - began >= ${STOP_LIMIT:-180})); then
      warn "nsys has not ended ${STOP_LIMIT:-180} s after the server was stopped; ending it"
      kill -TERM -- "-$server" 2>/dev/null || true
      sleep 5
      kill -KILL -- "-$server" 2>/dev/null || true
    fi
    sleep 0.2
  done
  wait "$server" 2>/dev/null || true
  # What the engine left behind when its parent went.
  kill -KILL -- "-$server" 2>/dev/null || true
  server=
}

start_server() {
  pid_file=$out/server.pid
  # A session of its own, so that whatever is left of it can be ended. spawn: vLLM advises it under nsys.
  # shellcheck disable=SC2016  # expands in the inner shell, whose process becomes vLLM
  local command=(env VLLM_WORKER_MULTIPROC_METHOD=spawn "$nsys" profile "${options[@]}" "--output=$out/capture"
    bash -c 'echo $$ > "$0"; exec "$@"' "$pid_file"
    "$vllm" serve "$model" --host 127.0.0.1 --port "$port" --profiler-config.profiler cuda "$@")
  if [[ -n $dry ]]; then run "${command[@]}"; return; fi
  quoted "${command[@]}" > "$out/server.command"
  setsid "${command[@]}" > "$out/server.log" 2>&1 < /dev/null &
  server=$!
  trap stop_server EXIT
  trap 'exit 130' INT TERM
  "$here/vllm-cpu/wait-health.sh" "$port" "$server" "${HEALTH_LIMIT:-1800}" >&2 || explain_start
}

explain_start() {
  tail -n 20 "$out/server.log" >&2
  ! grep -q 'unrecognized arguments: --profiler-config' "$out/server.log" ||
    fail "this vLLM is older than 0.13 and cannot start nsys captures (docs/guide/capture.md, Older vLLM)"
  fail "vLLM did not start; the whole log is $out/server.log"
}

drive() {
  local code=0
  run "$linktax" bench --base-url "http://127.0.0.1:$port" --concurrency "${CONCURRENCY:-16}" \
    --input-len "${INPUT_LEN:-1024}" --output-len "${OUTPUT_LEN:-512}" --cache cold \
    --profile --profile-for "${PROFILE_FOR:-2s}" --arm capture --out "$out/bench" >&2 || code=$?
  [[ -z $dry ]] || return 0
  # 1 is a flagged cell: its times are not good, which the profiler alone may cause; the capture can still be.
  ((code <= 1)) || fail "the load failed (code $code); the server's log is $out/server.log"
  grep -q '"profiled"' "$out/bench/run.json" ||
    fail "no capture was taken (profile_… above says why); a longer OUTPUT_LEN helps if the requests were over too soon"
}

find_reports() {
  shopt -s nullglob
  reports=("$out"/capture*.nsys-rep)
  local leftover=("$out"/capture*.qdstrm)
  shopt -u nullglob
  [[ ${#reports[@]} -gt 0 ]] && return
  tail -n 10 "$out/server.log" >&2
  [[ ${#leftover[@]} -eq 0 ]] ||
    fail "nsys left ${leftover[0]} and no report: its importer failed or was killed (raise STOP_LIMIT; is libdw1 installed?)"
  fail "nsys wrote no report; the whole log is $out/server.log"
}

analyse() {
  local report sqlite command code worst=0
  for report in "${reports[@]}"; do
    sqlite=${report%.nsys-rep}.sqlite
    run "$nsys" export --type=sqlite --force-overwrite=true "--output=$sqlite" "$report" >&2 ||
      fail "nsys could not export $report"
    for command in doctor split; do
      code=0
      run "$linktax" trace "$command" "$sqlite" || code=$?
      ((code <= worst)) || worst=$code
    done
  done
  return "$worst"
}

if [[ -n $dry ]]; then
  nsys=${NSYS:-nsys} vllm=${VLLM:-vllm} linktax=${LINKTAX_BIN:-linktax} options=()
  nsys_options
  start_server "$@"
  drive
  echo "+ kill -TERM VLLM_PID   # and wait up to ${STOP_LIMIT:-180} s for nsys" >&2
  reports=("$out/capture.1.nsys-rep")
  analyse
  exit 0
fi

check_tools
[[ ! -e $out/server.log ]] || fail "$out holds a capture already; set OUT"
mkdir -p "$out"
nsys_options
say "nsys: $nsys, vllm: $vllm, results: $out"
start_server "$@"
drive
say "stopping the server; nsys writes its report"
stop_server
find_reports
code=0
analyse || code=$?
say "reports, exports and the run: $out (scrub an export before you share it: linktax trace scrub IN OUT)"
exit "$((code > 0))"
