# The front door. Every target sets up what it needs on a machine that has only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help up down test test-engines check fix bench ledger clean
help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt tools/bootstrap.py
	$(PYTHON) tools/bootstrap.py --venv $(VENV)
	@touch $@

up: $(READY)     ## bring up a platform on this machine and run a sample job
	@$(BIN)/yunhe up

down: $(READY)   ## stop the platform; jobs and data stay
	@$(BIN)/yunhe down

check: $(READY)  ## style, types, layers, sizes
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python tools/break_contracts.py
	$(BIN)/python tools/sizes.py

fix: $(READY)    ## let the formatter and the linter fix what they can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: check      ## what installs in minutes: unit, property, conformance, integration, faults (sample)
	$(BIN)/python tools/system_packages.py test
	$(BIN)/pytest -m "not engine" -n 2 --dist loadfile

test-engines: $(READY) ## every engine, built once and cached
	$(BIN)/python tools/system_packages.py engines
	$(BIN)/python tools/control_plane.py
	$(BIN)/pytest -m "engine and not alone" -n 2 --dist loadgroup
	$(BIN)/pytest -m "engine and alone"
	$(BIN)/pytest -m "not engine" -n 2 --dist loadfile --apart tests/integration/entrypoints/api tests/integration/scheduling tests/integration/trading

bench: $(READY)  ## speed and memory, as ratios against a baseline in the same run
	$(BIN)/python -m bench

ledger: $(READY) ## which rows of the feature inventory are proven, by group
	$(BIN)/python tools/ledger.py

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .cache .ruff_cache .import_linter_cache .hypothesis
