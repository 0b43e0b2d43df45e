# make demo   set everything up and see a small model answer with its uncertainty
# make test   set everything up and run the checks
# Both need Python 3.10 or newer and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install

.PHONY: demo test test-slow lint types install clean

demo: $(VENV)/demo.installed
	$(BIN)/semtoken demo

test: lint types
	$(BIN)/python -m pytest

test-slow: $(VENV)/test.installed
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/test.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/test.installed
	$(BIN)/mypy

install: $(VENV)/test.installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/demo.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing semtoken, torch and transformers into $(VENV) (a minute or two) ..."
	$(PIP) -c constraints.txt -e '.[transformers,cluster]'
	@touch $@

$(VENV)/test.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing semtoken with all extras and the test tools into $(VENV) (two minutes or so) ..."
	$(PIP) -c constraints.txt -e '.[all]' --group dev
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
