# Everything runs from .venv, which is made at first use and again only when the two files
# that say what belongs in it have changed.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# Relative, so that a checkout under a path with spaces works. pip 25.3 and later read the
# second name for the packages that build ours, earlier ones the first.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

.PHONY: help quickstart test test-web site dist format clean

help:
	@echo "make quickstart   a minute on a CPU: generate, repair, fill in, train, re-draft"
	@echo "make test         lint, format check, types, tests"
	@echo "make test-web     the page of redraft serve in a real browser, where one can be had"
	@echo "make site         the documentation as HTML, read offline: build/site/index.html"
	@echo "make dist         sdist and wheel into dist/, and the wheel tried in an empty environment"
	@echo "make format       format the code and apply the safe lint fixes"
	@echo "make clean        remove caches and build outputs; .venv and runs stay"

quickstart: $(INSTALLED)
	$(BIN)/redraft quickstart

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -n auto --maxprocesses 4

# Playwright drives Debian's Chromium; where either cannot be had, the tests say so and are skipped.
test-web: $(INSTALLED)
	@$(BIN)/python -c 'import playwright' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright || true
	@command -v chromium >/dev/null || apt-get install --yes chromium >/dev/null 2>&1 || true
	$(BIN)/python -m pytest -rs tests/web/browser.py tests/web/report.py

site: $(INSTALLED)
	rm -rf build/site
	$(BIN)/python scripts/make_site.py

# The wheel is made from the sdist, so that both are tried.
dist: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python scripts/smoke.py dist/*.whl

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf dist build .pytest_cache .ruff_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"redraft needs Python 3.11 or newer, got %d.%d from $(PYTHON); name another one with make PYTHON=..." \
		% sys.version_info[:2])'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "Installing redraft into .venv (once; PyTorch is large where it is not at hand) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,web]'
	@touch $@
