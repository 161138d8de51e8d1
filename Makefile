# Everything a checkout needs is made below .venv; nothing else on the machine is touched, but for python3-venv (see setup).
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
ROOMS := nsqd lookupd admin apps shared pipeline penstock pyspark_nsq
UNPACKED := .venv/nginx/usr/sbin/nginx .venv/prometheus/usr/bin/promtool
NODE_CLIENTS := $(patsubst %,tests/clients/%/node_modules/.made,nsqjs jackd axe disqueue)

.DEFAULT_GOAL := help
.PHONY: help setup lake spark up unit test suite campaign check bench crash docs docs-serve reference lock release image-check screenshots format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.dev .venv/.compiled ## .venv with everything that running, testing and measuring needs

lake: .venv/.lake ## what penstock archive and penstock pipeline need, and Polars to read their table, about 480 MB

spark: .venv/.spark ## what Spark needs, and a Java, about 850 MB

up: .venv/.runtime .venv/.compiled ## the daemon set in the foreground, data in ./data; ARGS="--nodes 3 --port-offset 1000"
	@exec $(BIN)/penstock up --data ./data $(ARGS)

# Where the environment forbids byte code, every worker of every run would compile all tests.
unit test .venv/.collected: export PYTHONDONTWRITEBYTECODE =
# The order of a set of texts depends on this: a simulator's seed replays a failure only with the same value.
unit test campaign: export PYTHONHASHSEED = 0

unit: .venv/.dev | .venv/.collected ## the tests that open no socket and start no process: a minute on two cores; ARGS as for test
	$(BIN)/python -m pytest --unit -q -n 2 --dist worksteal $(ARGS)

# Four workers on two cores, because tests wait more than they compute; each takes whole files, so that a file's daemon is started
# once. tests/conftest.py says which files come first.
test: .venv/.dev .venv/.compiled $(NODE_CLIENTS) $(UNPACKED) .venv/.chromium ## every test, and make check; ARGS goes to pytest: "-n 0 -k word"
	@$(MAKE) --no-print-directory -j 2 check suite

suite: .venv/.dev | .venv/.collected
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

campaign: .venv/.dev .venv/.compiled $(NODE_CLIENTS) $(UNPACKED) .venv/.chromium ## hours of random tests; goes on where it was interrupted; ARGS="--only crashes", "--help"
	@$(BIN)/python -m tests.campaign $(ARGS)

check: .venv/.dev ## style, types, layers, words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.words --level 2 --budgets tests/words.budget

bench: .venv/.dev ## the table of figures; ARGS="--quick", "--only admin", "--nsqd PATH"
	$(BIN)/python -m bench $(ARGS)

crash: .venv/.dev ## what survives kill -9 and, as root, power cuts; ARGS="--quick", "--mode always", "--nsqd PATH"
	$(BIN)/python -m bench.crash $(ARGS)

docs: .venv/.docs reference ## the documentation as a site, into build/docs; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict $(ARGS)

docs-serve: .venv/.docs ## the same on http://127.0.0.1:8000, built again when a page changes; ARGS="--dev-addr 127.0.0.1:9000"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve $(ARGS)

reference: .venv/.runtime ## docs/reference from the declarations in the code
	$(BIN)/python -m docs.generate

# For every platform and Python, so that the same files serve an image and a machine. Those of the wheel's build are in its [build-system].
# The SBOM has the components of requirements.lock; the wheel contains it.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock: $(BIN)/python ## requirements*.lock, with hashes, and the SBOM, from pyproject.toml: for the image and applications; ARGS="--upgrade"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) $(ARGS) pyproject.toml -o requirements.lock
	$(LOCK) $(ARGS) --extra spark -c requirements.lock pyproject.toml -o requirements-spark.lock
	$(LOCK) $(ARGS) deploy/build.in -o requirements-build.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	$(BIN)/cyclonedx-py requirements requirements.lock --output-reproducible --output-format JSON --output-file deploy/sbom.cdx.json

release: .venv/.dev ## sdist, wheel, .deb, SBOM and checksums of this commit into build/release, built twice and compared
	$(BIN)/python -m deploy.release build/release

image-check: .venv/.dev ## the containers' image, built and run by podman, as root and with Debian's archive; ARGS="--spark"
	$(BIN)/python -m deploy.image_check $(ARGS)

screenshots: .venv/.dev $(NODE_CLIENTS) .venv/.chromium ## every page of nsqadmin at two widths, light and dark, into build/screenshots, some into docs
	$(BIN)/python -m tests.admin.screenshots build/screenshots docs/screenshots

format: .venv/.dev ## let ruff write the style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what the targets above made, but not ./data
	find $(ROOMS) -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .venv build/docs tests/clients/*/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The virtual environment. Debian's python3 comes without ensurepip; root gets it installed, others are told.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "penstock needs Python 3.11 or later; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq python3-venv; \
	  else echo "python3-venv is missing: run  sudo apt-get install python3-venv  and try again"; exit 1; fi; fi
	$(PYTHON) -m venv .venv

.venv/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.lake: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lake]' polars
	@touch .venv/.runtime $@

.venv/.spark: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,spark-jre]'
	@touch .venv/.runtime .venv/.lake $@

.venv/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark,spark-jre]'
	@touch .venv/.runtime .venv/.lake .venv/.spark $@

.venv/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch .venv/.runtime $@

# Byte code, as pip makes it for a wheel: without it, and where Python may not write it, every start compiles 200 files.
.venv/.compiled: $(shell find $(ROOMS) -name '*.py') | $(BIN)/python
	$(BIN)/python -m compileall -q $(ROOMS)
	@touch $@

# pytest's byte code of the tests, which each worker of a first run would make for itself: 40 s of CPU. An error is the run's to report.
.venv/.collected: | .venv/.dev
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null; touch $@

# A browser for the tests of nsqadmin's pages: root gets it installed, others skip those tests with a reason (and fail in CI).
.venv/.chromium: | $(BIN)/python
	@if ! command -v chromium chromium-browser google-chrome >/dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } >/dev/null 2>&1 || \
	    echo "chromium cannot be installed: the tests in a browser will be skipped"; \
	  else echo "chromium is missing: the tests in a browser will be skipped; sudo apt-get install chromium"; fi; fi
	@touch $@

# Unchanged clients in another language; without npm their tests skip with a reason (and fail in CI).
tests/clients/%/node_modules/.made: tests/clients/%/package-lock.json
	@if command -v npm >/dev/null; then cd $(<D) && npm ci --silent --no-audit --no-fund --ignore-scripts && touch node_modules/.made; \
	  else echo "npm is missing: the tests with $* will be skipped"; fi

# Debian's nginx and promtool, unpacked below .venv and not installed: tests look at our HTTP from behind the one, and try alerts with
# the other. Where apt's lists are empty they are fetched to the same place. Without apt those tests skip with a reason (and fail in CI).
OWN_LISTS = -o Dir::State::Lists=$$PWD/lists -o Dir::Cache=$$PWD/cache -o Debug::NoLocking=1
define unpack # the package $(1), for the program of the target
@if command -v $(@F) >/dev/null; then exit 0; fi; \
mkdir -p .venv/$(1)/lists/partial .venv/$(1)/cache/archives/partial && cd .venv/$(1) && \
{ apt-get -qq download $(1) || { apt-get -qq $(OWN_LISTS) update && apt-get -qq $(OWN_LISTS) download $(1); }; } 2>/dev/null && \
dpkg-deb -x $(1)_*.deb . && touch $(@:.venv/$(1)/%=%) && rm -rf lists cache $(1)_*.deb || \
echo "$(1) cannot be fetched by apt-get: the tests with $(@F) will be skipped"
endef

.venv/nginx/usr/sbin/nginx: | $(BIN)/python
	$(call unpack,nginx)

.venv/prometheus/usr/bin/promtool: | $(BIN)/python
	$(call unpack,prometheus)
