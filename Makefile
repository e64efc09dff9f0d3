# The verbs of this repository. CI runs the same ones. `make` alone lists them.
#
# A fresh machine needs Python 3.11 or newer with pip, and make. Everything else goes into .venv;
# PYTHON=python3.12 chooses another interpreter for it.

PYTHON ?= python3
SEEDS ?= 200
MINUTES ?= 60
WORKERS ?= 2
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
MARKDOWN_TESTS := tests/tidy/test_documents.py

.DEFAULT_GOAL := help
.PHONY: help install up test test-long check sync bench sim fuzz soak docs clean test-tools
.SILENT:

help: ## List the verbs
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed-dev ## Build .venv with everything that running and testing need

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is older than 3.11; install a newer one and say make PYTHON=python3.11 …" >&2; exit 1; }
	echo "building $(VENV)" >&2
# Debian ships venv apart from python3. Without it pip can still fill an empty environment.
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
	|| { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	     && $(PYTHON) -m pip --python $(VENV)/bin/python install --quiet pip; } 2>/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null \
	     && $(PYTHON) -m venv --clear $(VENV); } \
	|| { rm -rf $(VENV); \
	     echo "error: $(PYTHON) -m venv does not work here; run: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	echo "installing into $(VENV)" >&2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[console]'
	touch $@

# Tests need much that a node does not: Spark, database drivers, web frameworks.
$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	echo "installing into $(VENV), with what tests need" >&2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	touch $@

up: $(VENV)/.installed ## Start the all-in-one node; Ctrl-C stops it (ARGS="--ports 7800" to pass flags)
	exec $(BIN)/tern up $(ARGS)

# Tests start a thousand processes. Where the environment forbids bytecode, each would compile all of
# the sources once more: a third of the time of a start. So it is kept, but not in the tree.
ifdef PYTHONDONTWRITEBYTECODE
test test-long: export PYTHONDONTWRITEBYTECODE :=
test test-long: export PYTHONPYCACHEPREFIX := $(CURDIR)/.pytest_cache/bytecode
endif

# `check` has run the tidy ones.
test: check test-tools ## Check, then run every test that is not marked long
	$(BIN)/python -m pytest -m "not long" -n $(WORKERS) --dist loadfile --ignore tests/tidy \
	  --durations 25 --durations-min 5 $(ARGS)

test-long: install test-tools ## Run the tests that take minutes
	$(BIN)/python -m pytest -m long $(ARGS)

check: install ## Format, lint, types, layers, and the rules the repository has for itself
	$(BIN)/python scripts/make_sync.py --check
	$(BIN)/python scripts/make_gateway_protocol.py --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/tidy

sync: install ## Write the blocking client, src/ternmq/sync, from src/ternmq/client
	$(BIN)/python scripts/make_sync.py

# Peers that cannot be had here are named and left out.
bench: $(VENV)/.installed-bench ## Measure beside the peers; results go to benchmarks/results
	$(BIN)/python -m benchmarks.peers.install || true
	$(BIN)/python -m benchmarks.run $(ARGS)

.PHONY: bench-against
BASE ?= HEAD
bench-against: install ## Is this tree slower than a commit? (BASE=v0.1.0 ARGS="--rounds 40")
	$(BIN)/python -m benchmarks.versions --base $(BASE) $(ARGS)

.PHONY: bench-seal
bench-seal: install ## What encrypted bodies cost beside plain ones (ARGS="--count 100000")
	$(BIN)/python -m benchmarks.sealing $(ARGS)

.PHONY: walk
walk: install ## Print which files a publish, pull, ack, … crosses (ARGS="--only publish")
	$(BIN)/python -m benchmarks.walk $(ARGS)

sim: install ## Run the cluster simulation with more seeds (SEEDS=100000, ARGS="--first 5000")
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

fuzz: install ## Attack a node with hostile requests and batches (ARGS="--seconds 3600 --first 5000 --secured", or --doors: no node)
	$(BIN)/python -m tests.fuzz.http2
	$(BIN)/python -m tests.fuzz.run $(ARGS)

soak: install ## Run a whole cluster under load and faults for long (MINUTES=60, ARGS="--seed 2")
	$(BIN)/python -m tests.soak.run --minutes $(MINUTES) $(ARGS)

.PHONY: audit
audit: install ## Known holes in what is installed here, and its parts list (build/sbom.json)
	$(BIN)/python scripts/audit.py $(ARGS)

docs: install ## Check the links in every markdown file
	$(BIN)/python -m pytest $(MARKDOWN_TESTS)

clean: ## Remove what make made; never touches tern-data
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .grimp_cache src/*.egg-info
	find src tests benchmarks examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# Fault injection needs strace; outbox, inbox and registries are tested on real database servers,
# which tests start themselves: the packages must not start any. Not being root is no failure: the
# tests that need a tool are skipped and say so.
test-tools:
	command -v strace >/dev/null || $(call apt,strace) \
	|| echo "strace is not installed: the fault injection tests will be skipped" \
	        "(sudo apt-get install strace)" >&2
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null \
	|| $(call apt,postgresql) \
	|| echo "PostgreSQL is not installed: its tests will be skipped (sudo apt-get install postgresql)" >&2
	ls /usr/sbin/mariadbd >/dev/null 2>&1 || command -v mariadbd >/dev/null || $(call apt,mariadb-server) \
	|| echo "MariaDB is not installed: its tests will be skipped (sudo apt-get install mariadb-server)" >&2
	command -v ip >/dev/null || $(call apt,iproute2) \
	|| echo "iproute2 is not installed: the network partition tests will be skipped" \
	        "(sudo apt-get install iproute2)" >&2
	command -v chromium-headless-shell >/dev/null || $(call apt,chromium-headless-shell fonts-dejavu-core fonts-wqy-zenhei) \
	|| echo "chromium-headless-shell is not installed: the browser tests of the console will be skipped" \
	        "(sudo apt-get install chromium-headless-shell)" >&2
	ls /usr/share/java/zookeeper.jar >/dev/null 2>&1 || $(call apt,zookeeper) \
	|| echo "ZooKeeper is not installed: its tests will be skipped (sudo apt-get install zookeeper)" >&2

# RUNLEVEL=1 keeps a package from starting its service.
define apt
{ [ "$$(id -u)" = 0 ] && apt-get update -qq \
  && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $(1) >/dev/null; }
endef
