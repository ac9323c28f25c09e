# Two commands matter: `make demo` and `make test`. Both create the environment they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Real datasets, where a copy lies beside the checkout; tests that need an absent one say so and are skipped.
DATA := $(wildcard ../shared/data)
ifneq ($(DATA),)
export IMPERFED_DATA ?= $(abspath $(DATA))
endif

.PHONY: demo test fuzz lint bench docs clean

demo: $(READY)
	$(BIN)/imperfed run

test: $(READY) lint
	$(BIN)/pytest -n auto --cov=imperfed --cov-report=term:skip-covered

fuzz: $(READY)
	IMPERFED_FUZZ=500 $(BIN)/pytest -n auto tests/files/test_fuzz.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/imports.py
	$(BIN)/python tools/names.py
	$(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python -m benchmarks.cpu

docs: $(READY)
	$(BIN)/mkdocs serve

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) site build *.egg-info .mypy_cache .ruff_cache .coverage
