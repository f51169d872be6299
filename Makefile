# Two commands do everything on a machine with Python and make: `make train` and `make test`.
#
#   make train ARGS="--epochs 5"     PYTHON=python3.12     JAX=cuda13 (or cuda12)
#
# Each PYTHON and JAX has a virtual environment of its own, so that changing them never mixes two installations.

PYTHON ?= python3
JAX ?=
ARGS ?=
CONFIG ?= configs/digits.yaml

comma := ,
VENV := .venv$(subst /,-,$(patsubst %,-%,$(filter-out python3,$(PYTHON))))$(patsubst %,-%,$(JAX))
JAX_EXTRA := $(patsubst %,$(comma)%,$(JAX))
BIN := $(VENV)/bin

.PHONY: train test test-all lint bench bench-all docs clean
.DELETE_ON_ERROR:

train: $(VENV)/train.stamp
	$(BIN)/python -m train $(CONFIG) $(ARGS)

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

# The slow rest too: every optimizer after every compressor, every pair of schemes, long runs.
test-all: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "slow or not slow" $(ARGS)

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/train.stamp
	$(BIN)/python -m benchmarks.compression $(ARGS)

# Every benchmark that needs neither root, nor a GPU, nor another environment: many hours. ARGS=--quick shows that they run.
bench-all: $(VENV)/train.stamp
	$(BIN)/python -m benchmarks.everything $(ARGS)

# The pages that follow from the code, and the site. Warnings, such as a link that leads nowhere, are errors.
docs: $(VENV)/docs.stamp
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "the site: build/site/index.html"

clean:
	rm -rf .venv .venv-* build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that these extras were installed from this pyproject.toml; a second call installs nothing.
$(VENV)/train.stamp: EXTRAS := train
$(VENV)/test.stamp: EXTRAS := train,test
$(VENV)/lint.stamp: EXTRAS := train,test,lint
$(VENV)/docs.stamp: EXTRAS := train,docs
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "installing [$(EXTRAS)$(JAX_EXTRA)] into $(VENV): a few minutes, once"
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)$(JAX_EXTRA)]"
	touch $@

# Half an environment would look like a whole one to the next call.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
