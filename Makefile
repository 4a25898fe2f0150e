# The first of these that is 3.11 or later; `make PYTHON=/path/to/python3.12` takes that one.
PYTHON ?= $(or $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null \
	&& echo $(name)))),python3)
VENV   ?= .venv
JOBS   ?= 2
PAPERS ?= pfl-docvqa pried-kie gi-dqa cdmi extraction
# Of what `make gpu` needs, what the machine with a GPU has, as most have that have transformers.
HAVE   ?= pillow scipy
BIN    := $(VENV)/bin
# pip would compile 20 000 modules, in more than a minute. A run imports 4 000 of them, and Python
# compiles those once.
PIP    := $(BIN)/python -m pip install --quiet --no-compile
# Some images forbid to keep what was compiled, and then each process of the tests compiles those
# modules again, which takes 8 seconds.
unexport PYTHONDONTWRITEBYTECODE

PARALLEL := -n $(JOBS) --dist worksteal
PYTEST := $(BIN)/python -m pytest $(PARALLEL)

.PHONY: quickstart test test-all test-base test-fast test-hostile mutants check format docs reproduce benchmark gpu gpu-wheels clean

quickstart: $(VENV)/.installed   ## install, then federations, attacks on them, ε, and the report
	@PATH="$$(pwd)/$(BIN):$$PATH" sh experiments/quickstart.sh

test: $(VENV)/.installed         ## every promise, in minutes; `make test PYTHON=python3.13 VENV=.venv313`
	$(PYTEST) -m "not slow and not base"

test-all: $(VENV)/.installed     ## the slow tests too, and more examples of each property
	THOROUGH=1 $(PYTEST) -m "not base"

test-base: $(VENV)/.installed    ## models in their published sizes: up to 12 GiB, and minutes each
	OMP_NUM_THREADS=$(JOBS) $(BIN)/python -m pytest -m base

test-fast: $(VENV)/.installed    ## without Ray, killed processes and real documents
	$(PYTEST) -m "not slow and not base" $(or $(TESTS),tests/unit tests/properties)

test-hostile: $(VENV)/.installed ## as on somebody else's machine; `make test-hostile TESTS=tests/unit/runtime`
	$(BIN)/python tests/stranger/run.py $(PARALLEL) -m "not slow and not base" $(TESTS)

mutants: $(VENV)/.installed      ## small wrong changes that no test notices; an hour or two
	$(PIP) cosmic-ray coverage
	$(BIN)/python tests/mutants.py map today
	$(BIN)/python tests/mutants.py try today

check: $(VENV)/.installed        ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs              ## the pages in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -q -b html -W --keep-going -n -j auto docs docs/_build/html
	@echo "open $$(pwd)/docs/_build/html/index.html"

reproduce: $(VENV)/.installed    ## the papers' tables; hours, and it goes on where it was: `make reproduce PAPERS=cdmi`
	for paper in $(PAPERS); do \
	$(BIN)/fedpriv reproduce $$paper workers=$(JOBS) --results docs/papers/results || exit; done

benchmark: $(VENV)/.installed    ## ratios to a bare loop, Flower and pfl-research
	$(PIP) -e ".[peers]"
	$(BIN)/python benchmarks/simulation.py --verdict benchmarks/results/simulation.json

# Nothing is installed: a machine with a GPU may have no network.
gpu:                             ## what needs a GPU: `make gpu PART=training`; DEVICE=cpu SIZE=tiny anywhere
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu.py \
	$(if $(PART),--part $(PART)) $(if $(SIZE),--size $(SIZE)) $(if $(DEVICE),--device $(DEVICE)) \
	$(if $(COMMIT),--commit $(COMMIT))

gpu-wheels: $(VENV)/.installed   ## what such a machine may miss, in build/wheels: `WHEELS_FOR=3.12`
	$(BIN)/python benchmarks/gpu.py --download $(or $(WHEELS_FOR),3.12) --have $(HAVE)

$(VENV)/.installed: pyproject.toml
	@found=$$($(PYTHON) --version 2> /dev/null) && { \
	$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || found="$$found without venv"; \
	} || found="which does not start"; \
	$(PYTHON) -c 'import ensurepip, sys, venv; assert sys.version_info >= (3, 11)' 2> /dev/null || { \
	echo "fedpriv needs Python 3.11 or later with its module venv; found $(PYTHON), $$found."; \
	echo "  Debian, Ubuntu: sudo apt install python3-venv   (Ubuntu 22.04: python3.11-venv)"; \
	echo "  Fedora:         sudo dnf install python3"; \
	echo "  macOS:          brew install python@3.13"; \
	echo "If you have one elsewhere: make PYTHON=/path/to/python3.13"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/_generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
