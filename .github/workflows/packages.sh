#!/usr/bin/env bash
# Installs the Python packages of the program and of the policy packs, each with a hash of uv.lock; no package is built.
# With UV_OFFLINE=1 they come from .uv-cache, which a run without it has filled, and nothing is downloaded.
set -euo pipefail
export UV_CACHE_DIR=$PWD/.uv-cache
uv sync --frozen --no-dev --all-extras --no-install-project --no-build
for pack in workloads clouds; do
  uv venv --quiet --clear "policy/$pack/venv"
  uv pip install --quiet --python "policy/$pack/venv" --require-hashes --only-binary :all: \
    --requirement "policy/$pack/requirements.txt"
done
