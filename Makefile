# `make mnist` trains, evaluates, predicts and exports; `make test` is what CI runs.
# Each target makes .venv and installs what it needs; a stamp makes the second time quick.
# Another interpreter: make mnist PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --editable
CHECK_VERSION := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := help
.PHONY: help mnist test test-full lint bench

help:
	@echo "make mnist       train, evaluate, predict and export the CNN on real MNIST digits"
	@echo "make test        format, lint, types and all tests"
	@echo "make test-full   all tests and every case of the large tables"
	@echo "make lint        format, lint and types only"
	@echo "make bench       measure against a hand-written loop and Keras"
	@echo "Flags for the program go in ARGS: make mnist ARGS='--model=mnist_mlp'"

mnist: $(VENV)/.installed
	$(RUN) run_mnist.py $(ARGS)

test: lint
	$(RUN) -m pytest --numprocesses 2 $(ARGS)

test-full: lint
	$(RUN) -m pytest --numprocesses 2 -m '' $(ARGS)

lint: $(VENV)/.installed-dev
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

bench: $(VENV)/.installed-dev
	$(RUN) -m benchmarks $(ARGS)

$(VENV)/bin/python:
	@$(PYTHON) -c '$(CHECK_VERSION)' || { \
	  echo "make: '$(PYTHON)' is missing or not Python 3.10 to 3.13, which TensorFlow needs." >&2; \
	  echo "Name one that is: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# The pip that Python 3.10 brings tries versions out for more than ten minutes.
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.installed
