#!/usr/bin/env bash
# Installs the official clients into a folder: tools/clients/install.sh DIR. Tests find them by GRETA_CLIENTS=DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
cp "$here"/*.mjs "$here"/*.py .
npm install --silent --no-fund --no-audit openai@7.57.0 @anthropic-ai/sdk@1.14.0
python3 -m venv py
py/bin/pip install -q openai==3.57.0 anthropic==2.14.0 langchain-openai==1.7.4 schemathesis
