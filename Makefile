# Each target makes its own virtual environment and installs what it needs, from a clean clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml constraints.txt tools/install.py

.PHONY: help reproduce test test-slow test-cpus test-gpu lint types bench docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

reproduce: $(VENV)/installed-core  ## run what decides the published results, the cheapest first
	$(BIN)/triptych reproduce || [ $$? -eq 1 ]  # 1: a published claim fails, which is a finding

# Types are checked beside the tests, and told after them. Bytecode is kept, whatever the shell says:
# the tests start Python again and again, and each start would compile all sources anew.
test: export PYTHONDONTWRITEBYTECODE =
test: lint  ## lint, types and the whole test suite
	@$(BIN)/pyright > $(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"; tests=$$?; \
	wait $$types; types=$$?; echo "pyright:"; cat $(VENV)/types.log; \
	$(BIN)/triptych seal | tail -n 1; \
	test $$tests -eq 0 && test $$types -eq 0

test-slow: $(VENV)/installed-test  ## the checks that take minutes
	$(BIN)/python -m pytest -m slow

test-cpus: $(VENV)/installed-test  ## the numerical tests under several instruction sets
	$(BIN)/python tools/test_cpus.py -n 2

test-gpu: $(VENV)/installed-test  ## the whole suite on a machine with a GPU, in as many processes as cores
	@$(BIN)/python -c "import sys, torch; torch.cuda.is_available() or sys.exit('no GPU here: tools/test_on_gpu.py takes the tests to one')"
	$(BIN)/python -m pytest -n auto --maxprocesses 12 --dist loadfile -m "not slow"

lint: $(VENV)/installed-test  ## ruff, lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-test  ## pyright on src
	$(BIN)/pyright

bench: $(VENV)/installed-bench  ## speed against peers; updates the table of docs/benchmarks.md
	$(BIN)/python -m benchmarks --page

docs: $(VENV)/installed-docs  ## the documentation site, docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in $(CURDIR)/docs/_build/html/index.html: open it in a browser"

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-core: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/python tools/install.py
	@touch $@

$(VENV)/installed-%: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/python tools/install.py $*
	@touch $@
