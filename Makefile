# The front door. Every target sets up what it needs on a machine that has only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FEATURES := .cache/features

.PHONY: help up down test test-engines check check-types check-rest fix bench ledger prove pins sbom clean
help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(READY): pyproject.toml requirements.txt tools/bootstrap.py
	$(PYTHON) tools/bootstrap.py --venv $(VENV)
	@touch $@

up: $(READY)     ## bring up a platform on this machine and run a sample job
	@$(BIN)/yunhe up

down: $(READY)   ## stop the platform; jobs and data stay
	@$(BIN)/yunhe down

check: $(READY)  ## style, types, layers, sizes, names, and code that nothing uses
	@$(MAKE) --no-print-directory -j2 check-types check-rest

check-types: $(READY)
	$(BIN)/basedpyright

check-rest: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(BIN)/python tools/break_contracts.py
	$(BIN)/python -m tools.prove --check
	$(BIN)/python tools/sizes.py
	$(BIN)/python tools/class_names.py
	$(BIN)/python tools/reachable.py
	$(BIN)/vulture

fix: $(READY)    ## let the formatter and the linter fix what they can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: check      ## what installs in minutes: unit, property, conformance, integration, faults (sample)
	$(BIN)/python tools/system_packages.py test
	$(BIN)/pytest -m "not engine" -n 2 --dist loadfile --durations=20 --record=$(FEATURES)/test.json

test-engines: $(READY) ## every engine, built once and cached
	$(BIN)/python tools/system_packages.py engines
	$(BIN)/python tools/control_plane.py
	$(BIN)/pytest -m "engine and not alone" -n 2 --dist loadgroup --record=$(FEATURES)/test-engines.json
	$(BIN)/pytest -m "engine and alone" --record=$(FEATURES)/test-alone.json
	$(BIN)/pytest -m "not engine" -n 2 --dist loadfile --apart tests/integration/entrypoints/api tests/integration/scheduling tests/integration/trading

bench: $(READY)  ## speed and memory, as ratios against a baseline in the same run
	$(BIN)/python -m bench

ledger: $(READY) ## which rows of the feature inventory are proven, by group
	$(BIN)/python -m tools.ledger

prove: $(READY)  ## plant the fault of every feature mark and see its test fail; ROWS="A02 A03" for some
	$(BIN)/python -m tools.prove $(if $(ROWS),$(ROWS),--write docs/reference/proofs.md)

pins: $(READY)   ## pin every dependency by version and hash, after a change of pyproject.toml
	$(BIN)/python -m tools.pins

sbom: $(READY)   ## write sbom.json: what the platform is made of (CycloneDX)
	$(BIN)/python -m tools.sbom sbom.json

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .cache .ruff_cache .import_linter_cache .hypothesis
