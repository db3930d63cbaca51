#!/usr/bin/env bash
# test.sh [--quick]
#   Every check that a change must pass. All of them run, whatever fails on the way; the tests come last.
#   --quick  formatting and tests only, without polars (the Parquet export)
#   LINKTAX_VLLM_E2E=1  also the end-to-end comparison on a real vLLM server (scripts/real-vllm.sh)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
quick=
case ${1:-} in
  "") ;;
  --quick) quick=1 ;;
  *) echo "usage: scripts/test.sh [--quick]" >&2; exit 2 ;;
esac

failed=()
step() {
  local name=$1
  shift
  echo "== $name: $*" >&2
  "$@" < /dev/null || failed+=("$name")
}

real_vllm() {
  scripts/real-vllm.sh
  local code=$?
  if [[ $code == 75 ]]; then
    echo "SKIPPED: the comparison on a real vLLM server (the reason stands above)"
    code=0
  fi
  return $code
}

features=()
[[ -z $quick ]] || features=(--no-default-features --features linktax/bench)
# nextest where it is installed (cargo install cargo-nextest --locked takes minutes), else cargo's own runner.
tests=(cargo test --tests)
! cargo nextest --version >/dev/null 2>&1 || tests=(cargo nextest run)

step format cargo fmt --all --check
if [[ -z $quick ]]; then
  step clippy cargo clippy --locked --workspace --all-targets -- -D warnings
  step docs env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
  step doctests cargo test --locked --workspace --doc
fi
[[ -n $quick ]] || step capture scripts/capture-test.sh
[[ ${LINKTAX_VLLM_E2E:-0} != 1 ]] || step real-vllm real_vllm
step tests "${tests[@]}" --locked --workspace "${features[@]}"

[[ ${#failed[@]} -eq 0 ]] || { echo "FAILED: ${failed[*]}" >&2; exit 1; }
