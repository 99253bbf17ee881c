# One place for every command that a contributor runs. `make test` is what CI runs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Two test processes of one thread each: quicker on small machines than one process of two.
PYTEST_WORKERS ?= 2
PYTEST_ARGS    ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test check pytest browser format pages docs bench dist clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/longtail/nn/backends/cpu/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "longtail needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(STAMP)  ## create .venv and install the package with its development tools

demo: $(STAMP)  ## train on the embedded digits and show the report: the quickest look
	$(BIN)/python examples/demo.py

test: check pytest  ## every check and every test: what CI runs

check: $(STAMP)  ## format and lint (ruff), types (mypy strict), layers (import-linter)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The snippets for other trainers run in an environment on top of this one: with transformers installed, each import of
# torchmetrics takes a second longer.
LOOPS := $(VENV)/loops
$(LOOPS)/.installed: $(STAMP)
	$(BIN)/python -m venv $(LOOPS)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	  > $$($(LOOPS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/longtail.pth
	$(LOOPS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt accelerate lightning transformers
	@touch $@

pytest: $(STAMP) $(LOOPS)/.installed browser  ## the tests alone; PYTEST_ARGS='-k name' narrows them
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

browser:  ## Chromium for the tests of the report page, installed where we may
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium for the browser tests"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else echo "no chromium here: the browser tests will be skipped (apt-get install chromium)" >&2; fi

format: $(STAMP)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pages: $(STAMP)  ## make the tables and figures of all pages anew, from the records
	$(BIN)/python -m benchmarks.studies.folders.table
	$(BIN)/python -m benchmarks.studies.folders.front_page
	$(BIN)/python -m benchmarks.studies.methods_learn.table
	$(BIN)/python -m benchmarks.studies.compound_bn.evidence
	$(BIN)/python -m benchmarks.figures

docs: $(STAMP)  ## build the documentation site, strictly: build/site/index.html
	$(BIN)/python -m tools.build_site

bench: $(STAMP)  ## measure speed and memory; appends to benchmarks/speed/results.jsonl
	KINETO_LOG_LEVEL=9 $(BIN)/python -m benchmarks.speed.norm_layer
	$(BIN)/python -m benchmarks.figures
	$(BIN)/python -m benchmarks.speed.data_pipeline
	$(BIN)/python -m benchmarks.speed.train_step
	$(BIN)/python -m benchmarks.speed.methods
	KINETO_LOG_LEVEL=9 $(BIN)/python -m benchmarks.speed.resnet_step

# The kernels for arm64 are built where a cross compiler is installed (apt-get install gcc-aarch64-linux-gnu).
CROSS ?= aarch64-linux-gnu-gcc

# auditwheel looks for patchelf in PATH.
dist: $(STAMP)  ## build dist/: the sdist, a wheel without kernels, and one with them for x86-64 and arm64
	rm -rf dist
	$(BIN)/python -m build --sdist --outdir dist
	LONGTAIL_KERNELS=0 $(BIN)/pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz
	@if command -v $(CROSS) >/dev/null; then \
	  CC=$(CROSS) _PYTHON_HOST_PLATFORM=linux-aarch64 $(BIN)/pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz; \
	else echo "no $(CROSS) here: no wheel with kernels for arm64" >&2; fi
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build src/*.egg-info
