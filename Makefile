PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
BIN    := $(VENV)/bin

.PHONY: quickstart test test-base test-fast check format benchmark clean

quickstart: $(VENV)/.installed   ## install, then run a federation on generated invoices
	@output=$$($(BIN)/fedpriv run quickstart) && echo "$$output" && \
	echo "open $$(pwd)/$$(echo "$$output" | tail -n 1)/report.html"

test: $(VENV)/.installed         ## every test but those of models in their published sizes, in JOBS processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not base" -n $(JOBS) --dist loadfile

test-base: $(VENV)/.installed    ## models in their published sizes: up to 12 GiB, and minutes each
	$(BIN)/python -m pytest -m base

test-fast: $(VENV)/.installed    ## without Ray, killed processes and real documents
	$(BIN)/python -m pytest tests/unit tests/properties

check: $(VENV)/.installed        ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: $(VENV)/.installed    ## ratios to a bare loop, Flower and pfl-research
	$(BIN)/python -m pip install --quiet -e ".[peers]"
	$(BIN)/python benchmarks/simulation.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
