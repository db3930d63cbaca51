#!/usr/bin/env bash
# wait-health.sh PORT PID [LIMIT_S]
#   Returns 0 once GET /health answers 200, 1 when process PID has ended or LIMIT_S (300) are over.
set -euo pipefail
port=${1:?usage: wait-health.sh PORT PID [LIMIT_S]}
pid=${2:?usage: wait-health.sh PORT PID [LIMIT_S]}
limit=${3:-300}
began=$SECONDS
until curl -fsS --noproxy '*' -o /dev/null "http://127.0.0.1:$port/health" 2>/dev/null; do
  kill -0 "$pid" 2>/dev/null || { echo "the server (process $pid) ended before it was healthy" >&2; exit 1; }
  ((SECONDS - began < limit)) || { echo "no answer from /health within $limit s" >&2; exit 1; }
  sleep 0.2
done
echo "healthy after $((SECONDS - began)) s"
