#!/usr/bin/env bash
# capture-test.sh
#   Runs capture-vllm.sh and gpu-capture.sh from beginning to end without a GPU: stand-ins for `nsys`, `vllm` and a
#   python with PyTorch come first on the PATH, the mock server answers for vLLM, and recorded captures of a real vLLM
#   are what the stand-in exports.
#   LINKTAX_BIN  binary to use (default: a debug build with the features bench and trace)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
recorded=$PWD/crates/trace/tests/data/nsys/vllm-qwen3-4b-decode-c16
if [[ -z ${LINKTAX_BIN:-} ]]; then
  cargo build --locked --package linktax --no-default-features --features bench,trace >&2
  LINKTAX_BIN=${CARGO_TARGET_DIR:-$PWD/target}/debug/linktax
fi
LINKTAX_BIN=$(realpath "$LINKTAX_BIN")
export LINKTAX_BIN RECORDED=$recorded

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
PATH=$work/bin:$PATH
unset NSYS VLLM

# nsys: runs the command it is given; a report appears once that has ended, as with the real one.
cat > "$work/bin/nsys" <<'FAKE'
#!/usr/bin/env bash
set -eu
verb=$1
shift
case $verb in
  --version) echo "NVIDIA Nsight Systems version ${FAKE_NSYS_VERSION:-2025.3.2.0-0000} Linux" ;;
  profile)
    output='' mode=''
    while [[ $1 == --* ]]; do
      case $1 in
        --help) echo "    ${FAKE_NSYS_OPTIONS:---discard-environment=}"; exit ;;
        --output=*) output=${1#*=} ;;
        --cuda-graph-trace=graph) mode=-graph-level ;;
      esac
      echo "${1%%=/*}" >> "$FAKE_LOG"
      shift
    done
    "$@" || true
    suffix=.1
    ! grep -qx -- --capture-range-end=stop "$FAKE_LOG" || suffix=
    case ${FAKE_NSYS:-} in
      no-report) ;;
      qdstrm) : > "$output.qdstrm" ;;
      *) cp "$RECORDED$mode.sqlite.zst" "$output$suffix.nsys-rep" ;;
    esac ;;
  stats)
    for word in "$@"; do [[ $word != --output=* ]] || output=${word#*=}; done
    cp "$RECORDED.nsys-stats-kern-sum.csv" "${output}_cuda_gpu_kern_sum.csv" ;;
  export)
    for word in "$@"; do [[ $word != --output=* ]] || output=${word#*=}; done
    # linktax unpacks by content, so the packed recording can stand for the export.
    cp "${!#}" "$output" ;;
esac
FAKE
cat > "$work/bin/nvidia-smi" <<'FAKE'
#!/usr/bin/env bash
echo "${FAKE_DRIVER:-580.1}"
FAKE
# A python that has PyTorch and a GPU, as far as the scripts can tell.
cat > "$work/bin/python-with-torch" <<'FAKE'
#!/usr/bin/env bash
case "$*" in
  *torch_decode_loop.py*) echo '{"steps": 60, "eager_steps": 0}' ;;
  *torch.__version__*) echo "python 3 torch 2" ;;
  *) exec python3 "$@" ;;
esac
FAKE
# vllm: insists on the options without which there is no capture, then is the mock server.
cat > "$work/bin/vllm" <<'FAKE'
#!/usr/bin/env bash
set -eu
words=" $* "
[[ $words == " serve tiny --host 127.0.0.1 --port "* && $words == *" --profiler-config.profiler cuda "* ]] ||
  { echo "unexpected: $*"; exit 2; }
[[ ${FAKE_VLLM:-} != old ]] ||
  { echo "vllm: error: unrecognized arguments: --profiler-config.profiler cuda"; exit 2; }
[[ $VLLM_WORKER_MULTIPROC_METHOD == spawn ]]
exec "$LINKTAX_BIN" mock --host "$4" --port "$6" --mode engine --step-ms 5
FAKE
chmod +x "$work/bin/"*

failures=0
expect() {
  local what=$1
  shift
  "$@" || { echo "FAILED: $what" >&2; sed 's/^/    /' "$log" >&2; failures=$((failures + 1)); }
}
not() { ! "$@" 2>/dev/null; }
found() { compgen -G "$1*" > /dev/null; }
says() { grep -q -- "$1" "$log"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# capture CODE NAME [ASSIGNMENT...] -- [ARGUMENT...]: runs the script, checks its exit code, keeps what it says.
capture() {
  local want=$1 name=$2 code=0 settings=()
  shift 2
  while [[ $1 != -- ]]; do settings+=("$1"); shift; done
  shift
  out=$work/$name log=$work/$name.log
  export FAKE_LOG=$work/$name.options
  env "OUT=$out" "PORT=$(free_port)" CONCURRENCY=4 INPUT_LEN=64 OUTPUT_LEN=100 PROFILE_FOR=100ms HEALTH_LIMIT=30 \
    "${settings[@]}" "$here/capture-vllm.sh" "$@" > "$log" 2>&1 || code=$?
  expect "$name: exit code $want, got $code" test "$code" = "$want"
}

capture 0 whole -- tiny --max-num-seqs 8
expect "the capture is exported" test -s "$work/whole/capture.1.sqlite"
expect "the server has ended" not kill -0 "$(cat "$work/whole/server.pid")"
for option in --trace=cuda,nvtx --cuda-graph-trace=node --capture-range=cudaProfilerApi --capture-range-end=repeat \
  --trace-fork-before-exec=true --discard-environment=true; do
  expect "nsys is given $option" grep -qx -- "$option" "$work/whole.options"
done
expect "doctor ran" says 'trace doctor'
expect "the split is printed" says attention
expect "the command is kept" grep -q 'serve tiny .*--max-num-seqs 8' "$work/whole/server.command"

capture 0 no-discard FAKE_NSYS_OPTIONS=none -- tiny
expect "an option that nsys lacks is left out" not grep -q discard "$work/no-discard.options"
expect "with a warning" says 'trace scrub'

capture 0 old-nsys FAKE_NSYS_VERSION=2023.4.4.54 -- tiny
expect "an nsys older than the driver is warned of" says 'nsys 2023.4 is older than driver 580.1'
capture 0 old-both FAKE_NSYS_VERSION=2023.4.4.54 FAKE_DRIVER=550.54 -- tiny
expect "one as old as the driver is not" not says 'older than driver'

capture 1 too-short OUTPUT_LEN=1 -- tiny
expect "no capture is said" says 'no capture was taken'
capture 1 no-report FAKE_NSYS=no-report -- tiny
expect "a missing report is said" says 'nsys wrote no report'
capture 1 qdstrm FAKE_NSYS=qdstrm -- tiny
expect "a report that could not be made is said" says 'importer failed'
capture 1 old-vllm FAKE_VLLM=old -- tiny
expect "an old vLLM is named" says 'older than 0.13'
capture 1 no-vllm VLLM=no-such-vllm -- tiny
expect "a missing vLLM is named" says 'there is no no-such-vllm'

capture 2 usage -- --tensor-parallel-size 2
capture 2 port -- tiny --port 8000
capture 2 mode GRAPH_TRACE=both -- tiny
capture 0 dry PATH=/usr/bin:/bin -- --dry-run tiny --tensor-parallel-size 2
expect "a dry run prints the commands" says 'nsys profile .*vllm serve tiny .*--tensor-parallel-size 2'
expect "and makes nothing" test ! -e "$work/dry"
mapfile -t options < <(grep -o 'nsys profile .* --output' "$log" | grep -o -- '--[a-z][^ ]*')
expect "the recipe has options" test "${#options[@]}" -gt 6
for option in "${options[@]}"; do
  expect "docs/guide/capture.md has $option" grep -q -- "$option" docs/guide/capture.md
done

# gpu_capture CODE NAME [ASSIGNMENT...]
gpu_capture() {
  local want=$1 name=$2 code=0
  shift 2
  out=$work/$name log=$work/$name.log
  export FAKE_LOG=$work/$name.options
  env "OUT=$out" PYTHON=python-with-torch "$@" "$here/gpu-capture.sh" > "$log" 2>&1 || code=$?
  expect "$name: exit code $want, got $code" test "$code" = "$want"
}
gpu_capture 0 gpu
for file in log.txt node-report.txt node-steps.json node-kernels.json node-kern-sum.csv graph-report.txt \
  torch-qwen3-4b-node.sqlite torch-qwen3-4b-graph.sqlite; do
  expect "$file is brought back" found "$work/gpu/$file"
done
expect "all kernels are as nsys stats has them" says ' 0 differences'
expect "the graph-level capture is refused" grep -q 'exit code 1' "$work/gpu/graph-report.txt"
expect "and no more than eight files" test "$(find "$work/gpu" -type f | wc -l)" = 8
gpu_capture 1 gpu-qdstrm FAKE_NSYS=qdstrm
expect "the importer is looked at" says QdstrmImporter

[[ $failures == 0 ]] || { echo "$failures of the checks failed" >&2; exit 1; }
echo "capture-vllm.sh and gpu-capture.sh: all checks passed"
