#!/usr/bin/env bash
# usage: requirements/install.sh VENV LOCK...
# Makes the virtual environment VENV from fully pinned locks, without dependency resolution, and
# installs this project editable into it. Does nothing when VENV already holds exactly that.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
shift
# Everything that decides what the environment holds is in the stamp's name.
key=$(cat "$@" pyproject.toml build_hooks/*.py requirements/install.sh | sha256sum | cut -c1-16)
stamp=$venv/.complete-$key-$(pwd | sha256sum | cut -c1-8)
[ -f "$stamp" ] && exit 0

usable() {
  "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
    >/dev/null 2>&1
}

find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3; do
    if command -v "$name" >/dev/null && usable "$name"; then
      command -v "$name"
      return
    fi
  done
  echo "setup: no usable Python found. The locks are made for Python 3.11 or 3.12 (3.11 is the one" >&2
  echo "that is tested); install one with its venv module, or run 'make setup PYTHON=/path/to/python'." >&2
  return 1
}

if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  echo "setup: making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
rm -f "$venv"/.complete-*

# pip resolves nothing: the locks name every package, and the published metadata of two of them
# cannot be resolved without a GPU vendor's index (docs/install.md).
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install -qq --no-deps)
arguments=()
for lock in "$@"; do arguments+=(-r "$lock"); done
packages=$(cat "$@" | grep -cvE '^(#|$)')
echo "setup: installing $packages pinned packages into $venv (about 7 GB the first time, 3 to 4 minutes)"
started=$SECONDS
"${pip[@]}" "${arguments[@]}"
"${pip[@]}" --no-build-isolation --editable .
"$venv/bin/python" -c 'import dynamo.sglang, sglang_worker; assert "overlay" in dynamo.sglang.__file__'
touch "$stamp"
echo "setup: done in $((SECONDS - started)) s"
