#!/usr/bin/env bash
# apt-install.sh PACKAGE...   installs Debian packages without a question, as root or through sudo.
set -euo pipefail
command -v apt-get >/dev/null || { echo "no apt-get here; please install: $*" >&2; exit 1; }
as_root=()
if [[ $(id -u) != 0 ]]; then
  command -v sudo >/dev/null || { echo "not root and no sudo; please install: $*" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
install() { "${as_root[@]}" apt-get install -y -q --no-install-recommends "$@" < /dev/null; }
install "$@" || { "${as_root[@]}" apt-get update -q && install "$@"; }
