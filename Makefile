# `make run` starts rankloop and `make test` checks it; both work on a fresh clone, given Python 3.11, 3.12 or 3.13.
#
#   make run ARGS="--port 9000"    the words after `rankloop serve`
#   make run PYTHON=python3.12     the Python that .venv is made with
#   make test PROCESSES=4          how many processes share the tests
#   make run TORCH_INDEX=URL       an index to look for PyTorch in, besides the usual one. On Linux without a GPU, name
#                                  PyTorch's own index of CPU builds: they are a tenth of the size of the CUDA builds

PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=
PROCESSES ?= 3

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt \
       $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
QUICK := not slow and not long and not postgres and not demo_model
PYTEST := $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder

NUMERIC := numeric and not postgres and not browser and not demo_model
PROCESSORS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 \
              ONEDNN_MAX_CPU_ISA=AVX2,MKL_ENABLE_INSTRUCTIONS=AVX2 \
              ATEN_CPU_CAPABILITY=default,ONEDNN_MAX_CPU_ISA=SSE41,MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
              OMP_NUM_THREADS=2,OMP_WAIT_POLICY=PASSIVE

JAVASCRIPT := tests/javascript
NPM := $(JAVASCRIPT)/node_modules

.PHONY: run install model test check static tests test-long test-processors

run: install
	$(BIN)/rankloop serve $(ARGS)

install: .venv/installed

model: install
	$(BIN)/python -m training.lm.demo_model

test: static tests

tests: .venv/installed-dev
	$(PYTEST) -m "not long"

# What takes long: more seeds, families and points of a kill than `make test` tries. Its result goes into the page.
test-long: .venv/installed-dev
	$(PYTEST) -m long --keep-result=docs/long_tests.md

# The tests that compute, as other processors would: with other kernels; and with two threads, in one process, for
# threads that wait for each other in several processes at once take most of the time from them all.
test-processors: .venv/installed-dev
	@for setting in $(PROCESSORS); do echo "== $$setting"; \
	  n=$(PROCESSES); case $$setting in OMP_NUM_THREADS*) n=1;; esac; \
	  env $$(echo $$setting | tr , ' ') $(PYTEST) --numprocesses $$n -m "$(NUMERIC)" || exit 1; done

check: static
	$(BIN)/python -m pytest -m "$(QUICK)" tests/unit tests/property

static: .venv/installed-dev $(NPM)/.package-lock.json
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	nice $(BIN)/mypy
	$(BIN)/lint-imports
	$(NPM)/.bin/biome check --config-path $(JAVASCRIPT)/checks.json app/frontend $(JAVASCRIPT)
	$(NPM)/.bin/tsc --project $(JAVASCRIPT)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "$(PYTHON) is missing, or is not Python 3.11 to 3.13; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --no-compile --editable ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true  # pip would compile on one core
	@touch .venv/installed $@

# What checks the JavaScript. Node itself is one of the dev extras, so that no machine needs one of its own.
$(NPM)/.package-lock.json: $(JAVASCRIPT)/package-lock.json | .venv/installed-dev
	cd $(JAVASCRIPT) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
