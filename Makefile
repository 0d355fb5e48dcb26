# make quickstart   train a reward model on the shipped data, evaluate it, score with it and others
# make test         run the whole suite
# make lint         check style and types
# make clean        remove .venv, builds and caches; runs/ stays
#
# PYTHON names the interpreter (3.11 or newer), PIP_ARGS goes to every pip call, PYTEST_ARGS to pytest.
# Where pip would take a CUDA build of torch (several GB), this takes the CPU build:
#   make quickstart PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?= -n 2 --dist loadscope

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install $(PIP_ARGS) -c constraints.txt
QUICKSTART_OUT := runs/quickstart.jsonl

.PHONY: quickstart test lint clean

# One thread: the network is so small that two spend their time waiting for each other.
quickstart: $(VENV)/.installed-ocr
	$(BIN)/rewardctl validate-config examples/train_ukp.yaml examples/quickstart.yaml
	$(BIN)/rewardctl validate-data examples/train_ukp.yaml
	OMP_NUM_THREADS=1 $(BIN)/rewardctl train examples/train_ukp.yaml --overwrite
	$(BIN)/rewardctl eval examples/train_ukp.yaml --compare convincing longer --overwrite
	$(BIN)/rewardctl score examples/quickstart.yaml -o $(QUICKSTART_OUT) --overwrite

# One thread for each test process: more only compete for the same cores.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist rewardctl.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is there only when its installation ended well.
$(VENV)/.installed-ocr: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[ocr]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[all,dev]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "rewardctl needs Python 3.11 or newer, found: $$($(PYTHON) --version 2>&1);" \
	    "name another interpreter: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
