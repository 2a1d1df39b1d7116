# GNU make 3.81 and a POSIX shell are enough. `make help` lists the targets.
VENV         = .venv
PYTHON       =
VENV_FLAGS   =
CONSTRAINTS  = constraints.txt
TORCH_INDEX  =
JOBS         = 2
ARGS         =
OUT          = fedxray-out/demo

BIN          = $(VENV)/bin
PIP_INSTALL  = PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install \
               $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PYTEST       = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)
STAMP_VENV   = $(VENV)/.stamp-venv
STAMP_CORE   = $(VENV)/.stamp-core
STAMP_FLOWER = $(VENV)/.stamp-flower
STAMP_DEV    = $(VENV)/.stamp-dev

.PHONY: help demo flower test test-slow fuzz lint types docs bench clean clean-all

help:
	@echo "make demo       set up $(VENV), run the demo audit, say where the report is"
	@echo "make flower     set up $(VENV) with Flower, run examples/flower on this computer, audit one of its nodes"
	@echo "make test       set up $(VENV), then linter, types and all tests but the slow ones"
	@echo "make test-slow  the slow tests alone"
	@echo "make fuzz       a million damaged inputs to everything that reads files (Linux; under an hour)"
	@echo "make lint       ruff: rules and layout"
	@echo "make types      mypy, strict, on the package"
	@echo "make docs       build the generated pages of docs/, then site/"
	@echo "make bench      run the benchmarks of bench/"
	@echo "make clean      remove caches and build products; clean-all also removes $(VENV)"
	@echo
	@echo "PYTHON=python3.12                   use this Python (default: the first of 3.11 to 3.14 that is found)"
	@echo "TORCH_INDEX=https://download.pytorch.org/whl/cpu   Linux without a GPU: the small build of torch"
	@echo "VENV_FLAGS=--system-site-packages CONSTRAINTS=     reuse a torch that PYTHON already has"
	@echo "JOBS=4                              test processes;  ARGS=...  more arguments for demo or pytest"
	@echo "Settings of pip (PIP_INDEX_URL and the like) are honoured."

demo: $(STAMP_CORE)
	$(BIN)/fedxray demo --out $(OUT) $(ARGS)
	@echo "Open it in a browser: $(abspath $(OUT))/report.html"

flower: $(STAMP_FLOWER)
	$(BIN)/python examples/flower/run.py $(ARGS)

test: $(STAMP_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(STAMP_DEV)
	$(PYTEST) -m slow $(ARGS)

fuzz: $(STAMP_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run $(ARGS)

lint: $(STAMP_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP_DEV)
	$(BIN)/mypy

docs: $(STAMP_DEV)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet
	@echo "Pages: $(CURDIR)/site/index.html"

bench: $(STAMP_CORE)
	@for file in bench/*.py; do echo "== $$file"; OMP_NUM_THREADS=1 $(BIN)/python $$file || exit 1; done

$(STAMP_VENV):
	@sh scripts/make_venv.sh "$(VENV)" "$(PYTHON)" $(VENV_FLAGS)
	@touch $@

$(STAMP_CORE): pyproject.toml constraints.txt | $(STAMP_VENV)
	@sh scripts/say_size.sh 300 1.3
	$(PIP_INSTALL) -e .
	@touch $@

$(STAMP_DEV): pyproject.toml constraints.txt | $(STAMP_VENV)
	@sh scripts/say_size.sh 520 2.1
	$(PIP_INSTALL) -e ".[all,dev]"
	@touch $(STAMP_CORE) $(STAMP_FLOWER) $@

$(STAMP_FLOWER): pyproject.toml constraints.txt | $(STAMP_VENV)
	@sh scripts/say_size.sh 350 1.5
	$(PIP_INSTALL) -e ".[flower]"
	@touch $(STAMP_CORE) $@

clean:
	rm -rf build dist site fedxray.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fedxray tests -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean
	rm -rf $(VENV)
