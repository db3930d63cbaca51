#!/usr/bin/env bash
# start.sh [linktax bench options...]
#   From a fresh clone to numbers: builds the lean binary and runs `linktax bench` against its own mock
#   server, or against the server that --base-url names:
#     scripts/start.sh --base-url http://127.0.0.1:8000 --concurrency 1,4,16
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

target=(--mock)
for word in "$@"; do
  case $word in
    --base-url | --base-url=* | --mock | --resume | --help | -h) target=() ;;
  esac
done

"$here/setup.sh"
linktax=$("$here/build-lean.sh")
exec "$linktax" bench "${target[@]}" "$@"
