#!/usr/bin/env bash
# gpu-capture.sh pack
#   Where there is a network: collects in .carry/ what `gpu-capture.sh` needs on a GPU machine without one: the lean
#   linktax binary with the trace commands, and the Debian libraries that the importer of Nsight Systems asks for.
# gpu-capture.sh
#   On a machine with one NVIDIA GPU, PyTorch (python3) and nsys (on the PATH, or the copy inside Nsight Compute):
#   captures scripts/torch_decode_loop.py in node and in graph mode, exports both to SQLite, analyses them, and holds
#   the kernel sums against NVIDIA's own `nsys stats`. Takes two to four minutes; touches no clocks and no GPU settings.
#   Exit code 1: a check failed or something could not run (the summary says what).
#   OUT      folder for the results (default runs/gpu-capture-<time>): eight files
#   PYTHON   (default python3)
#   LOOP     options for torch_decode_loop.py
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
carry=$PWD/.carry

pack() {
  # libdw1 is what the importer links, the others are what libdw1 links.
  local packages=(libdw1 libelf1 zlib1g libbz2-1.0 liblzma5 libzstd1) package
  cargo build --locked --profile dist --package linktax --no-default-features --features bench,gpu,trace
  rm -rf "$carry"
  mkdir "$carry"
  (cd "$carry" && apt-get download "${packages[@]}")
  for package in "$carry"/*%*; do mv "$package" "${package//%/_}"; done
  cp "${CARGO_TARGET_DIR:-target}/dist/linktax" "$carry/linktax"
  du -sh "$carry"
}

if [[ ${1:-} == pack ]]; then pack; exit; fi
[[ $# == 0 ]] || { echo "usage: gpu-capture.sh [pack]" >&2; exit 2; }

out=${OUT:-runs/gpu-capture-$(date +%Y%m%d-%H%M%S)}
mkdir -p "$out"
out=$(realpath "$out")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=()
failed() { echo "FAILED: $*"; failures+=("$*"); }
# attempt NAME COMMAND...: goes on whatever happens, within a time that keeps the whole under ten minutes.
attempt() {
  local name=$1 code=0 began=$SECONDS
  shift
  echo "== $name: $*"
  timeout --kill-after=10 "${LIMIT:-120}" "$@" || code=$?
  echo "   code $code, $((SECONDS - began)) s"
  [[ $code == 0 ]] || failed "$name (code $code)"
  return "$code"
}

find_nsys() {
  local candidate
  for candidate in "${NSYS:-}" "$(command -v nsys || true)" /opt/nvidia/nsight-systems*/*/bin/nsys \
    /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys; do
    [[ ! -x $candidate ]] || { echo "$candidate"; return; }
  done
  return 1
}

# The carried libraries, but only those that this machine lacks: an older copy of one that it has could break others.
carried_libraries() {
  local package library known
  mkdir "$work/unpacked" "$work/lib"
  for package in "$carry"/*.deb; do
    [[ ! -e $package ]] || dpkg-deb --extract "$package" "$work/unpacked" || failed "unpack $package"
  done
  known=$(ldconfig -p)
  while read -r library; do
    [[ $known == *[[:space:]]"$(basename "$library") "* ]] || ln -s "$library" "$work/lib/"
  done < <(find "$work/unpacked" -type l -name '*.so.*')
  echo "carried libraries in use:"; find "$work/lib" -type l -printf '  %f\n'
}

# What the importer still lacks: the usual reason for a .qdstrm without a report.
explain_importer() {
  local importer
  importer=$(find "$(dirname "$nsys")/.." /opt/nvidia -name QdstrmImporter -print -quit 2>/dev/null) || true
  [[ -n $importer ]] || { echo "no QdstrmImporter beside $nsys"; return; }
  echo "importer: $importer; libraries it does not find:"
  { ldd "$importer"; find "$(dirname "$importer")" -maxdepth 1 -name '*.so*' -exec ldd {} +; } 2>/dev/null |
    { grep 'not found' || true; } | sort -u
}

# capture MODE: $work/MODE.nsys-rep and $work/MODE.sqlite
capture() {
  local mode=$1 extra=()
  [[ $("$nsys" profile --help 2>&1) != *--discard-environment* ]] || extra=(--discard-environment=true)
  # shellcheck disable=SC2086  # LOOP is a list of options
  attempt "capture, $mode" "$nsys" profile --trace=cuda,nvtx --sample=none --cpuctxsw=none \
    "--cuda-graph-trace=$mode" --capture-range=cudaProfilerApi --capture-range-end=stop \
    "${extra[@]}" --force-overwrite=true "--output=$work/$mode" \
    "$python" scripts/torch_decode_loop.py ${LOOP:-} || true
  [[ -s $work/$mode.nsys-rep ]] || {
    failed "capture, $mode: no report"
    ls -la "$work"
    explain_importer
    return 1
  }
  attempt "export, $mode" "$nsys" export --type=sqlite --force-overwrite=true "--output=$work/$mode.sqlite" \
    "$work/$mode.nsys-rep"
  ls -la "$work/$mode.nsys-rep" "$work/$mode.sqlite"
}

# ask FILE WANTED_CODE linktax-arguments...: appends the answer to FILE.
ask() {
  local file=$1 want=$2 code=0 began=$SECONDS
  shift 2
  { echo "\$ linktax $*"; timeout 60 "$linktax" "$@" 2>&1; } >> "$out/$file" || code=$?
  echo "\$ linktax $*: code $code, $((SECONDS - began)) s"
  echo "(exit code $code)" >> "$out/$file"
  [[ $code == "$want" ]] || failed "linktax $*: exit code $code, expected $want"
}

# A scrubbed export comes back: the original names the machine.
bring_back() {
  local mode=$1
  attempt "scrub, $mode" "$linktax" trace scrub "$work/$mode.sqlite" "$work/$mode.scrubbed.sqlite" || return 0
  if command -v zstd >/dev/null; then
    zstd -q -19 "$work/$mode.scrubbed.sqlite" -o "$out/torch-qwen3-4b-$mode.sqlite.zst"
  else
    gzip -9 -c "$work/$mode.scrubbed.sqlite" > "$out/torch-qwen3-4b-$mode.sqlite.gz"
  fi
}

look_at_node() {
  local file=$work/node.sqlite
  ask node-report.txt 0 trace doctor "$file"
  ask node-report.txt 0 trace split "$file"
  ask node-report.txt 0 trace kernels "$file"
  "$linktax" trace steps "$file" --json > "$out/node-steps.json" || failed "trace steps --json"
  "$linktax" trace kernels "$file" --json > "$out/node-kernels.json" || failed "trace kernels --json"
  if attempt "nsys stats" "$nsys" stats --report cuda_gpu_kern_sum --format csv "--output=$work/stats" "$file"; then
    cp "$work/stats_cuda_gpu_kern_sum.csv" "$out/node-kern-sum.csv" || failed "nsys stats wrote nothing"
  fi
  "$python" scripts/check_gpu_capture.py "$out" "$work/loop.txt" || failed "check_gpu_capture.py"
  bring_back node
}

look_at_graph() {
  local file=$work/graph.sqlite
  # 1: a graph-level capture is refused, and the shares of the other capture help.
  ask graph-report.txt 1 trace doctor "$file"
  ask graph-report.txt 1 trace split "$file"
  [[ ! -s $work/node.sqlite ]] || ask graph-report.txt 0 trace split "$file" --profile-from "$work/node.sqlite"
  bring_back graph
}

facts() {
  uname -srm
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  "$nsys" --version
  "$python" -c 'import sys, torch; print("python", sys.version.split()[0], "torch", torch.__version__)'
  "$linktax" --version
}

main() {
  linktax=${LINKTAX_BIN:-$carry/linktax}
  [[ -x $linktax ]] || { echo "there is no $linktax: run scripts/gpu-capture.sh pack first"; return 1; }
  nsys=$(find_nsys) || { echo "there is no nsys here"; return 1; }
  carried_libraries
  export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  facts
  # shellcheck disable=SC2086  # LOOP is a list of options
  attempt "the loop on its own" "$python" scripts/torch_decode_loop.py ${LOOP:-} > "$work/loop.txt" || true
  cat "$work/loop.txt"
  if capture node; then look_at_node; fi
  if capture graph; then look_at_graph; fi
  ls -la "$out"
  [[ ${#failures[@]} == 0 ]] || { printf 'FAILED: %s\n' "${failures[@]}"; return 1; }
  echo "all checks passed"
}

main 2>&1 | tee "$out/log.txt"
exit "${PIPESTATUS[0]}"
