# Framegate. `make help` lists the targets; the README explains the first two.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# A Python that the embedded Triton's wheel supports.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=

.PHONY: help setup setup-demo demo test test-zoo soak check fmt lint types arch bench clean

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then echo "Framegate needs Python 3.11 or 3.12 (set PYTHON=/path/to/it)." >&2; exit 2; fi
	$(PYTHON) -m venv $(VENV) || { echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@touch $@

# The demo needs neither TensorFlow nor Keras, so its set-up is light.
$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing into $(VENV) (about 1 GB, a minute) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[embedded]'
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing into $(VENV) with TensorFlow, Keras and the tools (about 2.5 GB, two minutes) ..."
	$(PIP) install --quiet --constraint constraints.txt --editable '.[embedded,graphdef,dev]'
	@touch $@ $(VENV)/.demo

setup-demo: $(VENV)/.demo
setup: $(VENV)/.dev  ## Make .venv with everything that tests and development need

demo: $(VENV)/.demo  ## Real Triton, real model, real video: see Framegate do its job
	$(BIN)/framegate demo

test: $(VENV)/.dev  ## All tests that need no GPU (real embedded Triton, real models)
	$(BIN)/python -m pytest -m "not zoo_all" $(PYTEST_ARGS)

test-zoo: $(VENV)/.dev  ## Build and compare all eight models (14 GB of memory, minutes)
	$(BIN)/python -m pytest -m "zoo or zoo_all" $(PYTEST_ARGS)

soak: $(VENV)/.dev  ## The tests of docs/field-reports.md at full length (tens of minutes)
	$(BIN)/python -m pytest tests/field --soak $(PYTEST_ARGS)

check: lint types arch test  ## What CI runs: lint, types, architecture, tests

fmt: $(VENV)/.dev  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.dev  ## Check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev  ## Check types (mypy strict)
	$(BIN)/mypy

arch: $(VENV)/.dev  ## Check the layers (import-linter)
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## Measure the engine and the admission test
	$(BIN)/python -m benchmarks.engine

clean:  ## Remove what was built or measured; keeps .venv and the weights
	rm -rf build dist run demo_output .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
