# Every target works on a machine with Python 3.11 or later and make. What they need is
# installed into .venv, once, and again when requirements/dev.txt or pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
UV := build/uv

# The environment holds this folder's path; in a copy or after a move it is made anew.
ifneq ($(shell cat .venv/made-for 2>/dev/null),$(CURDIR))
.PHONY: .venv/made-for
endif

# The tests start many processes; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test browser proofs few units lint soak bench docs requirements clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/installed ## keep, break off and resume a session before your eyes
	$(BIN)/perdure demo

test: .venv/installed .venv/browser ## run the tests; a tenth of the counts, seeds printed
	$(MAKE) --no-print-directory --jobs=3 proofs few units

# Each part waits for disks, servers and other processes half of its time: three at once use two
# cores well.
FEW := $(patsubst %,tests/test_%.py, \
	catalog_analysis catalog_postgres catalog_query conversations docs evidence examples formats \
	found frames_merging http_client json_lines lockstep model_record passages postgres_doubt \
	postgres_reading postgres_rights search_questions summing tidy views vocabulary)

PYTEST = $(BIN)/python -m pytest -o tmp_path_retention_policy=failed

# What a killed process wrote is there afterwards, on a disk as in memory, and a loss of power is
# played from what was asked of the disk. So the folders of the proofs are in memory where there is
# room; those of `make soak` are on the disk, and so are those of most other tests, some of which
# tell changes apart by the times of files, which are too coarse for a medium that is so quick.
proofs: .venv/installed
	TMPDIR="$$(sh tests/scratch.sh)" $(PYTEST) tests/proof

few: .venv/installed
	TMPDIR="$$(sh tests/scratch.sh)" $(PYTEST) $(FEW)

units: .venv/installed .venv/browser
	$(PYTEST) --ignore=tests/proof $(addprefix --ignore=,$(FEW))

browser: .venv/browser ## find a Chromium for the tests, or install one

lint: .venv/installed ## check style, formatting, types and import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: .venv/installed ## run the proofs with their full counts
	PERDURE_SOAK=1 $(BIN)/python -m pytest -m "proof or soak" -s

bench: .venv/installed ## measure against the floors; PARTS="folders postgres" only some
	$(BIN)/python -m benchmarks $(PARTS)

docs: .venv/installed ## write the pages of docs/ anew that are made from the code
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/events.py
	$(BIN)/python docs/formats.py
	$(BIN)/python docs/api.py

requirements: ## write requirements/dev.txt anew from requirements/dev.in
	$(PYTHON) -m venv --clear $(UV)
	$(UV)/bin/python -m pip install --quiet uv
	$(UV)/bin/uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes \
		--no-emit-index-url --no-header --quiet \
		--output-file requirements/dev.txt requirements/dev.in

clean: ## remove everything that can be made again
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made-for:
	@$(PYTHON) -c 'import sys; sys.exit("perdure needs Python 3.11 or later; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv --clear .venv
	@printf '%s' "$(CURDIR)" > $@

.venv/required: .venv/made-for requirements/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

.venv/installed: .venv/required pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The tests of the page drive a real browser; where there is one it is looked for once.
.venv/browser: .venv/made-for tests/browser/chromium.sh
	@sh tests/browser/chromium.sh > $@
