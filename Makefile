# Two commands do everything on a fresh clone: `make study` and `make test`. Each sets up what it needs first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

# Where this is set, every process of the tests would compile all of our sources again
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup services check fix test torture study results bench bench-tune notebooks docs dist lowest clean
help:
	@echo "make study   reproduce the paper's evaluation and write the report to out/"
	@echo "make test    run the tests; ONLY=linucb, ONLY=replay or ONLY=src/undertow/ridge.py for a policy, a room or a file"
	@echo "make services install PostgreSQL and Chromium from Debian's packages, for the tests that need them"
	@echo "make torture the long tests of reliability, SECONDS=60 for a part, SEED=0"
	@echo "make check   format, lint, types, direction of imports, how states are read, words: all complaints together"
	@echo "make fix     format, repair what a tool can, fill the pages from results/, then check"
	@echo "make bench   compare with other libraries, plain NumPy and C++; BENCH=full for everything"
	@echo "make results run everything whose numbers stand in a document, and fill the pages; PIECES='channels theory' for some"
	@echo "make notebooks write examples/notebooks from the examples"
	@echo "make docs    build the documentation site in out/docs/html; warnings are errors"
	@echo "make dist    build sdist and wheel in dist/, and check them and the repository"
	@echo "make lowest  run the tests of the core with the lowest versions of its dependencies"
	@echo "make setup   create $(VENV) and install everything (the others do this by themselves)"
	@echo "make clean   remove what was built, compiled or written"

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "undertow needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@# Bikeshare.csv is read out of ISLP; what ISLP depends on (torch among it) is large and not needed for that
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps ISLP==0.6.0
	@touch $@

services:
	@tools/services

check: $(READY)
	@$(BIN)/python tools/check.py

fix: $(READY)
	@$(BIN)/python tools/check.py --fix

test: $(READY)
	@$(BIN)/python $(if $(ONLY),tools/only.py '$(ONLY)',-m pytest --numprocesses logical --dist loadfile -m 'not slow')

torture: $(READY)
	$(BIN)/python -m pytest --numprocesses logical --dist loadfile -m slow tests
	$(BIN)/python tools/torture.py --seed $(or $(SEED),0) --seconds $(or $(SECONDS),60)

study: $(READY)
	$(BIN)/undertow study

bench: $(READY)
	$(BIN)/python -m benchmarks $(if $(filter full,$(BENCH)),--full)

bench-tune: $(READY)
	$(BIN)/python -m benchmarks.tune

results: $(READY)
	$(BIN)/python tools/results.py $(PIECES)

notebooks: $(READY)
	$(BIN)/python tools/notebooks.py

docs: $(READY)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d out/docs/trees . out/docs/html
	@echo "out/docs/html/index.html"

dist: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/python -m repo_review .

# The versions named in pyproject.toml, not the newest; only uv resolves to those
LOWEST := out/lowest
lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct '.[study,data,pandas]' --group test
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider -W ignore::DeprecationWarning $(LOWEST_TESTS)
LOWEST_TESTS := $(addprefix tests/,live/test_arms.py policies/test_ares.py mathematics/test_kalman.py \
  policies/test_policies.py replay/test_replay_table.py mathematics/test_ridge.py support/test_showing.py mathematics/test_simulation.py mathematics/test_system.py live/test_trace.py mathematics/test_window.py)

clean:
	rm -rf $(VENV) .bench out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
