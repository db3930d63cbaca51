#!/usr/bin/env bash
# build-lean.sh
#   Builds the lean binary (no polars: what goes to a GPU host) and prints its path.
#   LINKTAX_BIN  use this binary instead and build nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z ${LINKTAX_BIN:-} ]]; then
  cargo build --locked --profile dist --package linktax --no-default-features --features bench,gpu >&2
  LINKTAX_BIN=${CARGO_TARGET_DIR:-$PWD/target}/dist/linktax
fi
realpath "$LINKTAX_BIN"
