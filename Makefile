# `make` alone lists what there is. Everything sets up what it needs; a second run finds it there.
# Plain enough for GNU make 3.81. Tools are run as `python -m tool`: their own start lines break in long paths.

PYTHON =
PY = .venv/bin/python

.DEFAULT_GOAL := help
.SUFFIXES:

find_python = found='$(PYTHON)'; [ -n "$$found" ] || found=$$(sh scripts/find-python) || exit 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: install
install: ## Make .venv: every extra and every tool, at the pinned versions
	@$(find_python); "$$found" scripts/environment.py .venv --extras all --group dev
