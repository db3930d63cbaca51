#!/usr/bin/env bash
# bench-trace.sh [ROWS]...
#   Reads and splits synthetic exports of so many kernel rows (default 1000000 10000000; 50000000 needs 5 GB of disk)
#   and prints seconds, peak memory and how both grow. With nsys on PATH, `nsys stats --report cuda_gpu_kern_sum` runs
#   on the same file and the ratio is printed. Exit code 1 if 10 M rows take over 10 s or 0.5 GB.
#   TMPDIR  where the exports go (removed at the end)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -gt 0 ]] || set -- 1000000 10000000
cargo build --quiet --release -p linktax-trace --example synth --example analyse
examples=${CARGO_TARGET_DIR:-target}/release/examples

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Seconds of a command to stdout, its own output to a file.
timed() {
  local out=$1 start
  shift
  start=$(date +%s%N)
  "$@" > "$out"
  awk -v a="$start" -v b="$(date +%s%N)" 'BEGIN { printf "%.2f", (b - a) / 1e9 }'
}

status=0
for rows in "$@"; do
  file=$work/$rows.sqlite
  "$examples/synth" crates/trace/specs/scale.toml "$file" "$rows"
  cat "$file" > /dev/null # from the page cache, for both tools
  seconds=$(timed "$work/ours" "$examples/analyse" "$file")
  cat "$work/ours"
  peak=$(sed -n 's/^total.*peak \([0-9]*\) MiB/\1/p' "$work/ours")
  echo "$rows $seconds $peak" >> "$work/table"
  if (( rows <= 10000000 )) && awk -v s="$seconds" -v m="$peak" 'BEGIN { exit !(s > 10 || m * 1.048576 > 500) }'; then
    echo "over the limit of 10 s and 0.5 GB for $rows rows" >&2
    status=1
  fi
  if command -v nsys >/dev/null; then
    theirs=$(timed "$work/theirs" nsys stats --force-export=false --report cuda_gpu_kern_sum --format csv "$file")
    awk -v a="$theirs" -v b="$seconds" \
      'BEGIN { printf "nsys stats: %.2f s for kernel sums alone; %.1f times ours\n", a, a / b }'
  fi
  rm -f "$file" "$file.truth.json"
done
command -v nsys >/dev/null || echo "no nsys on PATH: no comparison with nsys stats (Debian non-free: nsight-systems)"
awk 'NR == 1 { r = $1; s = $2; m = $3 }
     { printf "%d rows: %.2f s (%.1f times for %.1f times the rows), %d MiB, %.0f B a row\n",
         $1, $2, $2 / s, $1 / r, $3, $3 * 1048576 / $1 }' "$work/table"
exit "$status"
