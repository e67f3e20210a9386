# `make mnist` trains, evaluates, predicts and exports; `make test` is what CI runs.
# Each target makes .venv and installs what it needs; a stamp makes the second time quick.
# Another interpreter: make mnist PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
N ?= 1000
SEED ?= 0
BASE ?= HEAD~1
# Another interpreter that has TensorFlow 2.15.1 already: make contract-peer PEER_PYTHON=...
PEER_VENV ?= .venv-peer
PEER_PYTHON ?= $(PEER_VENV)/bin/python
# A version of TensorFlow, or "nightly".
TF ?= 2.21.0
CANARY_VENV ?= .venv-canary-$(TF)

RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --editable
# One more than two cores: tests of clusters and of timeouts mostly wait. Neighbours run in one
# process as long as all have work: what a module shares is made once.
PROCESSES := --numprocesses 3 --dist worksteal
# Tests place replicas on CPUs. To show them a GPU: make test CUDA_VISIBLE_DEVICES=0
test test-full contract-peer canary: export CUDA_VISIBLE_DEVICES ?=
CHECK_VERSION := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := help
.PHONY: help mnist test test-full contract-peer canary differential lint bench bench-compare

help:
	@echo "make mnist       train, evaluate, predict and export the CNN on real MNIST digits"
	@echo "make test        format, lint, types and all tests"
	@echo "make test-full   all tests and every case of the large tables"
	@echo "make contract-peer  tests/contract/ on TensorFlow 2.15.1 with its own tf.estimator"
	@echo "make canary TF=2.18.1   what the library needs of that TensorFlow's inside (or TF=nightly)"
	@echo "make differential N=1000 SEED=0   random programs against a plain eager loop"
	@echo "make lint        format, lint and types only"
	@echo "make bench       measure against a hand-written loop and Keras"
	@echo "make bench-compare BASE=HEAD~1   what got slower or faster since another commit"
	@echo "Flags for the program go in ARGS: make mnist ARGS='--model=mnist_mlp'"

mnist: $(VENV)/.installed
	$(RUN) run_mnist.py $(ARGS)

test: lint
	$(RUN) -m pytest $(PROCESSES) $(ARGS)

test-full: lint
	$(RUN) -m pytest $(PROCESSES) -m '' $(ARGS)

contract-peer: $(PEER_PYTHON)
	$(PEER_PYTHON) -m pytest --numprocesses 2 $(ARGS) tests/contract

canary: $(CANARY_VENV)/.installed
	$(CANARY_VENV)/bin/python -m pytest $(ARGS) tests/_tf/test_canary.py

differential: $(VENV)/.installed-dev
	$(RUN) -m tests.differential --cases $(N) --seed $(SEED)

lint: $(VENV)/.installed-dev
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

bench: $(VENV)/.installed-dev
	$(RUN) -m benchmarks $(ARGS)

bench-compare: $(VENV)/.installed-dev
	$(RUN) -m benchmarks.compare $(BASE) $(ARGS)

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

# TensorFlow 2.15 is the last version that has tf.estimator; it needs Python 3.9 to 3.11.
$(PEER_VENV)/bin/python:
	python3.11 -m venv $(PEER_VENV).new
	$(PEER_VENV).new/bin/python -m pip install --quiet --disable-pip-version-check \
	  'tensorflow==2.15.1' 'pandas<3' pytest pytest-timeout pytest-xdist
	@# A venv that is moved finds its packages by its interpreter's place.
	mv $(PEER_VENV).new $(PEER_VENV)

# In an environment of its own, without the library: pytest finds that in this folder.
$(CANARY_VENV)/.installed:
	$(PYTHON) -m venv $(CANARY_VENV)
	$(CANARY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(CANARY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(filter nightly,$(TF)),--pre tf-nightly tf-keras-nightly,\
	  'tensorflow==$(TF)' 'tf-keras==$(basename $(TF)).*') \
	  absl-py psutil tensorboard pytest pytest-timeout
	@touch $@
