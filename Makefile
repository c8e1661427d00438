# Every target that needs the environment makes it first; nothing needs a GPU or a service.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-compat demo serve test test-long test-compat lint format bench bench-drain relock clean

VENV ?= .venv
COMPAT_VENV ?= .venv-compat
PY := $(VENV)/bin/python
COMPAT_LOCKS := requirements/compat-0.5.21.lock requirements/dev.lock

# Threads that spin while they wait make two cores ten times slower.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## make .venv from the locks (once, about 3 minutes)
	@requirements/install.sh $(VENV) requirements/cpu.lock requirements/dev.lock

demo: setup ## start frontend and worker, ask two questions, stop everything
	@$(PY) -m sglang_worker.demo.run

serve: setup ## the same, left running until Ctrl-C
	@$(PY) -m sglang_worker.demo.run --serve

test: setup ## units, real engine, end to end; ends within 60 minutes on 2 cores
	@$(PY) -m tests.run

test-long: setup ## the long profiles as well
	@$(PY) -m tests.run --long

setup-compat: ## make .venv-compat with SGLang 0.5.21
	@requirements/install.sh $(COMPAT_VENV) $(COMPAT_LOCKS)

test-compat: setup-compat ## a reduced selection on SGLang 0.5.21
	@$(COMPAT_VENV)/bin/python -m tests.run --compat

lint: setup ## ruff check, ruff format, mypy
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: setup ## let ruff rewrite what it can
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: setup ## measure and write benchmarks/results
	@$(PY) -m benchmarks.run

bench-drain: setup ## the long drain proof (about half an hour on 2 cores), see docs/drain.md
	@$(PY) -m benchmarks.drain --long

relock: setup ## resolve the locks anew, see requirements/README.md
	@$(PY) requirements/relock.py

clean: ## remove build leftovers and caches, not the environments
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache .demo
	find components tests -name __pycache__ -prune -exec rm -rf {} +
