#!/usr/bin/env bash
# setup.sh
#   What a fresh Debian or Ubuntu machine with Rust (rustup) lacks to build and test linktax. A second
#   run does nothing. Elsewhere: a C compiler that `cc` starts, and curl for the scripts.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

packages=()
# rustc links through cc, and the `ring` crate compiles C and assembly.
command -v cc >/dev/null || packages+=(gcc libc6-dev)
command -v curl >/dev/null || packages+=(curl ca-certificates)
[[ ${#packages[@]} -eq 0 ]] || "$here/apt-install.sh" "${packages[@]}"

command -v cargo >/dev/null || {
  echo "there is no cargo: install Rust with rustup first (rust-toolchain.toml names the version)" >&2
  exit 1
}
