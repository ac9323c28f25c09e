# `make demo` and `make test` matter most; `make quick` is for the inner loop. All create the environment they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Real datasets, where a copy lies beside the checkout; tests that need an absent one say so and are skipped.
DATA := $(wildcard ../shared/data)
ifneq ($(DATA),)
export IMPERFED_DATA ?= $(abspath $(DATA))
endif

# The theme announces its successor in every build.
export NO_MKDOCS_2_WARNING := 1

# The tests start dozens of processes, each of which would compile what it imports wherever this variable is set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test coverage quick fuzz lint check bench docs serve clean

demo: $(READY)
	$(BIN)/imperfed run

test: $(READY) lint
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# The same with the lines that no test reaches; it takes half as long again.
coverage: $(READY)
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --cov=imperfed --cov-report=term:skip-covered

# The heart of every package in under a minute on two cores: what starts processes, trains for long, draws pages or
# runs the whole catalogue is left to `make test`.
SLOW := algorithms/test_drop_in algorithms/test_fedpsl algorithms/test_pfedmo core/test_new_kind core/test_plugins \
	engine/test_stacked
QUICK := tests/core tests/engine tests/algorithms $(SLOW:%=--ignore=tests/%.py) \
	tests/contract/test_clauses_can_fail.py tests/nn/test_embeddings.py tests/nn/test_optimizers.py tests/attacks \
	tests/defences/test_robust_rules.py tests/defences/test_splitting.py tests/defences/test_evidence.py \
	tests/repairs/test_correction.py tests/repairs/test_clusters.py tests/repairs/test_grouping.py \
	tests/data/test_dataset.py tests/data/test_partitions.py tests/data/test_noise.py tests/data/test_annotations.py \
	tests/data/test_tasks.py tests/data/test_npz.py tests/data/test_readers.py tests/files/test_sites.py \
	tests/evaluation/test_evaluator.py tests/results tests/experiments/test_config.py tests/report/test_report.py \
	tests/census/test_guess.py tests/census/test_guessed_inputs.py tests/census/test_guessed_layout.py \
	tests/census/test_figures.py tests/flower/test_store.py tests/flower/test_keys.py

quick: $(READY) check
	$(BIN)/pytest -n auto $(QUICK)

fuzz: $(READY)
	IMPERFED_FUZZ=500 $(BIN)/pytest -n auto tests/files/test_fuzz.py

lint: check docs

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/imports.py
	$(BIN)/python tools/names.py

bench: $(READY)
	$(BIN)/python -m benchmarks.cpu

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/python tools/offline.py site

serve: docs
	$(BIN)/mkdocs serve

$(READY): pyproject.toml constraints.txt
	@echo "Installing into $(VENV). Most of the time goes into the download of PyTorch; pip says nothing meanwhile."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "imperfed needs Python 3.11 or later; this is $(PYTHON) " + sys.version.split()[0] + ". Name another: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q -q -j 0 $(VENV)/lib || true  # as pip does, but on all cores
	touch $@

clean:
	rm -rf $(VENV) site build *.egg-info .mypy_cache .ruff_cache .coverage
