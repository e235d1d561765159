# perfdb: `make demo` shows it, `make test` checks it, `make up` runs it. Needs Python 3.11 or 3.12 and git.
# PYTHON=/path/to/python3.12 names an interpreter; PYTEST_ARGS="-k gate" replaces the arguments of pytest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
INSTALLED := .venv/.installed
# Two processes: much of the suite waits for servers. A file stays in one of them, with the servers it started.
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: help demo test lint up clean chromium

help:
	@echo "make demo   build a small repository, measure its history, find and mail what got slower"
	@echo "make up     run perfdb here: database, broker, web, workers"
	@echo "make test   lint, types and every test"
	@echo "make lint   ruff, mypy, import rules, missing migrations"
	@echo "make clean  remove what make made (not your data in .perfdb)"

demo: $(INSTALLED)
	@$(BIN)/python manage.py demo

up: $(INSTALLED)
	@$(BIN)/python manage.py up

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	# The warning is about a database that need not run for this.
	$(BIN)/python -W "ignore:Got an error checking" manage.py makemigrations --check --dry-run

test: lint chromium
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# An interpreter counts only if it runs, has the right version and can make environments (on Debian the last
# is a package of its own).
.venv/bin/python:
	@for candidate in "$${PYTHON:-}" python3.11 python3.12 python3 /usr/bin/python3.11 /usr/bin/python3.12; do \
	  [ -n "$$candidate" ] || continue; \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
	      2>/dev/null; then \
	    echo "making .venv with $$("$$candidate" --version)"; \
	    exec "$$candidate" -m venv .venv; \
	  fi; \
	done; \
	echo "perfdb needs Python 3.11 or 3.12 with venv, and found neither." >&2; \
	echo "Debian, Ubuntu: apt-get install python3.11-venv (or python3.12-venv). Or: make PYTHON=/path/to/python" >&2; \
	exit 1

# Without a GPU torch comes first and pinned, so that nothing below chooses another build of it.
$(INSTALLED): pyproject.toml | .venv/bin/python
	@if ! nvidia-smi -L >/dev/null 2>&1; then $(BIN)/python -m pip install --quiet torch==2.13.0; fi
	$(BIN)/python -m pip install --quiet --editable '.[server,local,bench,test]'
	@touch $@

# A browser for the end-to-end tests: one that is there, else Debian's (as root), else Playwright's download.
chromium: $(INSTALLED)
	@present() { \
	  for name in chromium chromium-browser google-chrome; do \
	    "$$name" --version >/dev/null 2>&1 && return 0; \
	  done; \
	  $(BIN)/python -c 'import os, sys; from playwright.sync_api import sync_playwright as start; p = start().start(); path = p.chromium.executable_path; p.stop(); sys.exit(not os.path.exists(path))'; \
	}; \
	present && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Chromium with apt-get"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
	      chromium fonts-dejavu-core; } >/dev/null || true; \
	  present && exit 0; \
	fi; \
	echo "downloading Chromium with Playwright"; \
	$(BIN)/playwright install chromium || true; \
	present && exit 0; \
	echo "The tests need Chromium. As root: apt-get install chromium; else: $(BIN)/playwright install chromium" >&2; \
	exit 1

clean:
	@if [ -x $(BIN)/python ]; then $(BIN)/python manage.py down || true; fi
	rm -rf .venv .demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "kept: .perfdb (the database, keys, mail and logs of this checkout)"
