# Everything a newcomer or CI needs; each target sets up what it needs. `make help` explains them.
PYTHON ?= python3
VENV   := .venv
READY  := $(VENV)/.ready
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo bench test lint types unit format reference fuzz soak audit lock clean

help: ## explain every target
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "isthmus needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || { echo "isthmus needs a JDK 17 or newer on the PATH or in JAVA_HOME"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m isthmus.records.warm
	$(BIN)/python -m isthmus.engine.class_archive
	@touch $(READY)

setup: $(READY) ## make the virtual environment and compile the kernels once

demo: $(READY) ## a data centre dies under traffic, is rebuilt, and work comes home; with the proof (< 5 min)
	@$(BIN)/python tools/demo.py

bench: $(READY) ## side by side with peers; QUICK=1: under 5 minutes, SCALE=1: how cost grows
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(SCALE),--scale)

test: lint types $(READY) ## lint, types and the whole test-suite (what CI runs), a file at a time on each of two cores
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY) ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict on src/
	$(BIN)/mypy

unit: $(READY) ## only the tests that start no process
	$(BIN)/python -m pytest tests/unit

format: $(READY) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY) ## write the configuration reference from the models
	$(BIN)/python tools/generate_reference.py

fuzz: $(READY) ## a million mutated batches through the codec (some minutes)
	$(BIN)/python tests/fuzz_batches.py --count 1000000

soak: $(READY) ## random faults for hours, judged all the time: MINUTES=120 SEED=7; EPISODE=3 repeats one
	$(BIN)/python tests/soak/soak.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(EPISODE),--episode $(EPISODE))

audit: $(READY) ## what we depend on: known vulnerabilities, ages, licences
	@$(BIN)/python tools/audit.py

lock: ## renew requirements.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header --quiet -o requirements.lock

clean: ## remove the virtual environment and caches of this directory
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
