# Everything a newcomer or CI runs. A target makes .venv itself, from nothing but Python and the package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= runs/demo

.DEFAULT_GOAL := help
.PHONY: help setup demo format check test test-all bench paper clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: $(VENV)/.dev  ## Install everything for working on entrec into .venv

demo: $(VENV)/.paper  ## See what ER changes: BYOL and BYOL + ER side by side, a table and a report in runs/demo (3 minutes)
	$(BIN)/entrec demo --out $(OUT) --overwrite

format: $(VENV)/.dev  ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(VENV)/.dev  ## Check style (ruff) and types (mypy, strict)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: $(VENV)/.test  ## Run the test suite, two files at a time (no GPU needed)
	$(BIN)/pytest -m "not slow and not gpu" -n 2 --dist loadfile

test-all: $(VENV)/.test  ## Run every test: the slow ones, 4 processes, and the GPU's where there is one
	$(BIN)/pytest

bench: $(VENV)/.bench  ## Time the losses against dense PyTorch and lightly, on the GPU or CPU at hand
	$(BIN)/entrec bench loss

paper: $(VENV)/.paper  ## Make results/convergence again in full (about twenty minutes)
	$(BIN)/entrec paper convergence --overwrite --out results/convergence

clean:  ## Remove .venv, caches and runs/
	rm -rf $(VENV) runs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info

# One stamp per set of extras. Versions are pinned by constraints.txt; users who pip install get the ranges of pyproject.toml.
$(VENV)/.%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "entrec needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (PyTorch alone takes some minutes and 5 GB the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@
