# Every target sets up what it needs; the first run takes a minute, the next ones start at once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt
SETUP  := pyproject.toml constraints.txt
# More workers than cores: many tests wait for a time limit, a container or a server.
TESTS  ?= -n 4 --dist loadfile
# Fewer for the inner loop, where little waits, and each worker must first import all tests.
QUICK  ?= -n 3 --dist loadfile
PROOFS ?= tests
FUZZ   ?=
SECONDS_EACH ?= 600
MUTANTS := tests/mutants tests/ledger/test_mutants.py

# Tests start hundreds of interpreters; where this is set, each of them compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick check lint types layers dead docs site coverage bench bench-peers bench-check torture mutants fuzz format wheel wheels clean

$(VENV)/.run: $(SETUP)
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[cli]'
	@touch $@

$(VENV)/.test: $(SETUP) | $(VENV)/.run
	@echo "Installing the test tools ..."
	@$(PIP) -e '.[test]'
	@touch $(VENV)/.run $@

$(VENV)/.dev: $(SETUP) | $(VENV)/.test
	@echo "Installing the development tools ..."
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.run $(VENV)/.test $@

demo: $(VENV)/.run
	@$(BIN)/wink demo

test: $(VENV)/.test
	@$(BIN)/python -m pytest -m "not torture" $(TESTS)

# For the inner loop: no containers, few servers and processes, nothing that takes long, few examples of each property.
quick: $(VENV)/.test
	@$(BIN)/python -m pytest -m "not torture and not slow" --hypothesis-profile quick $(QUICK) tests

# 2,000 runs that are killed until they end; CI takes 200.
torture: export WINK_KILLED_RUNS ?= 2000
torture: $(VENV)/.test
	@$(BIN)/python -m pytest -m torture -n 2 --dist worksteal --timeout 1800 -o faulthandler_timeout=2000 $(PROOFS) $(MUTANTS:%=--ignore=%)

mutants: $(VENV)/.test
	@$(BIN)/python -m pytest -m torture -n 2 --dist worksteal --timeout 1800 -o faulthandler_timeout=2000 $(MUTANTS)

# `make fuzz FUZZ="paths journal" SECONDS_EACH=60`; without FUZZ all targets.
fuzz: $(VENV)/.test
	@$(PIP) --only-binary :all: atheris || echo "atheris has no wheel for this Python: hypothesis is used"
	@$(BIN)/python -m fuzz --seconds $(SECONDS_EACH) $(FUZZ)

check: lint types layers dead docs coverage

lint: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

# The second: every name a user can reach has a declared type. PYTHONPATH, because it does not follow editable installs.
types: $(VENV)/.dev
	@$(BIN)/basedpyright
	@PYTHONPATH=src $(BIN)/basedpyright --verifytypes weakincentives --ignoreexternal >$(VENV)/types.txt || (cat $(VENV)/types.txt; exit 1)

layers: $(VENV)/.dev
	@$(BIN)/lint-imports

dead: $(VENV)/.dev
	@$(BIN)/vulture
	@$(BIN)/deptry src

docs: $(VENV)/.dev
	@$(BIN)/python -m pytest README.md CONTRIBUTING.md docs src

$(VENV)/.docs: $(SETUP) | $(VENV)/.test
	@echo "Installing Sphinx ..."
	@$(PIP) -e '.[docs]'
	@touch $(VENV)/.run $(VENV)/.test $@

# The documentation as a website in build/site, then the test that no link is broken and nothing is loaded from elsewhere.
site: $(VENV)/.docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees -c docs/site . build/site
	@WINK_TEST_SITE=build/site WINK_TEST_REQUIRE=sphinx $(BIN)/python -m pytest tests/core/test_site.py

# A signal that interrupts the tracer itself leaves its lock taken, so the storms of signals run without it.
UNTRACED := --ignore=tests/runtime/test_interrupts_storms.py --ignore=tests/filesystem/test_host_interrupts.py \
	--deselect=tests/runtime/test_jsonl_log.py::test_interrupts_tear_no_line_of_another_event

coverage: $(VENV)/.dev
	@rm -f .coverage .coverage.*
	@$(BIN)/coverage run -m pytest -m "not torture and not timing" $(TESTS) tests --ignore-glob='tests/adapters/test_claude*' --ignore-glob='tests/adapters/test_local*' $(UNTRACED)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report --fail-under 95

bench: $(VENV)/.test
	@$(BIN)/python -m benchmarks

# Fails when a call needs more instructions than benchmarks/instructions.json keeps.
bench-check: $(VENV)/.test
	@$(BIN)/python -m benchmarks.bench_instructions check

# The same work in other frameworks, each in an environment of its own in build/peers (800 MB); takes half an hour.
bench-peers: $(VENV)/.test
	@$(BIN)/python -m benchmarks.peers

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

wheel: $(VENV)/.dev
	@rm -rf dist
	@$(BIN)/python -m build --wheel --outdir dist .

# Which dependencies have no wheels for a Python or system that we support; asks the index.
wheels: $(VENV)/.test
	@$(BIN)/python scripts/check_wheels.py

clean:
	rm -rf $(VENV) dist build .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
