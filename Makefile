# Everything runs in a private virtual environment; python3 and make are all a machine needs.
#
#   make demo PYTHON=python3.12    another interpreter: the environment is built again for it
#   make test ARGS="-k fork -x"    arguments for pytest (or for the demo, or the benchmark)

PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 3
ARGS    ?=

RUN     := $(VENV)/bin/python
PIP     := $(RUN) -m pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install -qq --progress-bar off -c constraints.txt

# The stamps carry the interpreter's version, so that a new PYTHON is never served by an old environment.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
CREATED := $(VENV)/.created-$(VERSION)
FOR_USE := $(VENV)/.installed-for-use
FOR_DEV := $(VENV)/.installed-for-development
# Compiled by the installation, where there is a compiler.
NATIVE  := hatch_build.py $(wildcard src/threadline/base/*.c src/threadline/base/*.h)
DEV_EXTRAS := dev,langgraph,pandas,postgres,mysql,redis,cold,otel,alerts,web
OLD     := $(VENV)-oldest
FOR_OLD := $(OLD)/.installed-$(VERSION)
# A server of S3 for the tests; it needs older packages than they do.
MOTO     := $(VENV)-moto
FOR_MOTO := $(MOTO)/.installed-$(VERSION)
OLDEST_TESTS := tests/test_conformance.py tests/langgraph/test_graph_agents.py tests/langgraph/test_graph_resume.py

# Where a machine forbids it, as images for containers often do, every process of the tests compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test oldest soak bench docs lint format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(FOR_USE) ## an agent is killed, resumes, asks, travels and branches, in a few seconds
	@$(RUN) -m threadline demo $(ARGS)

test: lint oldest $(FOR_MOTO) ## what a change must pass: lint, types, then the tests
	@$(RUN) -m tests.servers.install
	@$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

oldest: $(FOR_OLD) ## the adapter's tests on the oldest LangGraph of the declared range
	@echo "On the oldest langgraph-checkpoint of the declared range:"
	@# LangGraph 1.2.0 itself still lists a question that was answered; later versions do not.
	@$(OLD)/bin/python -m pytest -q -n $(WORKERS) -k 'not two_waiting_siblings' $(OLDEST_TESTS)

soak: $(FOR_DEV) $(FOR_MOTO) ## the long runs of crashes and races, left out of `make test`
	@$(RUN) -m tests.servers.install
	@# A soak may take long; only one that hangs for an hour is given up.
	@$(RUN) -m pytest -m soak -o faulthandler_timeout=3600 -n $(WORKERS) $(ARGS)

bench: $(FOR_DEV) ## measure side by side with LangGraph's own savers
	@$(RUN) -m bench $(ARGS)

docs: $(FOR_DEV) ## the documentation as a site, in site/
	@$(RUN) -m pages $(ARGS)

lint: $(FOR_DEV) ## ruff and mypy, changing nothing
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

format: $(FOR_DEV) ## mend what ruff can mend
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

clean: ## remove the environment, caches and builds
	rm -rf src/threadline/base/compiled.*.so $(VENV) $(OLD) $(MOTO) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(FOR_USE): $(CREATED) pyproject.toml constraints.txt $(NATIVE)
	@echo "Installing threadline[langgraph] into $(VENV) ..."
	@$(INSTALL) -e '.[langgraph]'
	@touch $@

# What development needs includes what use needs: one install marks both.
$(FOR_DEV): $(CREATED) pyproject.toml constraints.txt $(NATIVE)
	@echo "Installing threadline[$(DEV_EXTRAS)] into $(VENV) (a minute or two, the first time) ..."
	@$(INSTALL) -e '.[$(DEV_EXTRAS)]'
	@touch $(FOR_USE) $@

$(FOR_OLD): pyproject.toml constraints-oldest.txt $(NATIVE)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the oldest LangGraph of the declared range into $(OLD) ..."
	@$(PYTHON) -m venv --clear $(OLD)
	@$(OLD)/bin/python -m pip --disable-pip-version-check --no-input install -qq --progress-bar off \
	    -c constraints-oldest.txt -e '.[langgraph]' langgraph-checkpoint-conformance \
	    langgraph-checkpoint-sqlite aiosqlite pytest pytest-xdist
	@touch $@

$(FOR_MOTO): $(FOR_DEV)
	@$(PYTHON) -m venv --clear $(MOTO)
	@$(MOTO)/bin/python -m pip --disable-pip-version-check --no-input install -qq --progress-bar off \
	    'moto[server]>=5,<6' || echo "moto cannot be installed: its tests will be skipped"
	@touch $@

# A failed `venv` leaves a folder that looks alive; only the stamp says that it was finished.
$(CREATED):
	@$(PYTHON) -c '' || { echo "$(PYTHON) does not run: install Python 3.10 or newer, or name one: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "$(PYTHON) is $(VERSION), Threadline needs 3.10 or newer: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Creating $(VENV) with Python $(VERSION) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@
