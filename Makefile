SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup airflow-db test test-unit docs pages messages browser pictures check lint types imports demo up faults prove bench wheel lock clean

PY := .venv/bin/python

# Every process a recipe starts sees the same sources, the same clock zone and the Spark of .venv. A SPARK_HOME
# that the user has for other work would bring another Spark; only set-up sees it, for its mirror settings.
user_spark_home := $(SPARK_HOME)
unexport SPARK_HOME
# Hundreds of processes of the tests would compile the same modules anew.
unexport PYTHONDONTWRITEBYTECODE
# What the user has on the Python's path is for the Airflow of `make up` alone: modules that settings name lie there.
user_pythonpath := $(PYTHONPATH)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/jobs:$(CURDIR)/plugins
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/.venv/bin/python
export TZ := UTC

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: ## check Java, make .venv, fetch the jars (each target does this by itself)
	@SPARK_HOME="$(user_spark_home)" scripts/setup.sh

airflow-db: ## make the database of the embedded Airflow in .airflow/
	@SPARK_HOME="$(user_spark_home)" scripts/setup.sh airflow-db

# Kafka and PostgreSQL are started as the tests start them.
demo: export PYTHONPATH := $(CURDIR)/jobs:$(CURDIR)/plugins:$(CURDIR)/tests
demo: setup ## real flights, a killed run, its recovery and a report; also SOURCE=kafka, TARGET=postgres
	$(PY) scripts/demo.py $(if $(SOURCE),--source $(SOURCE)) $(if $(TARGET),--target $(TARGET))

up: setup ## the demo's Airflow, started to stay; prints the address of its UI and the login
	PYTHONPATH="$(PYTHONPATH)$(if $(user_pythonpath),:$(user_pythonpath))" $(PY) scripts/up.py

# Two files of tests side by side, the long ones first; a file's tests share what they set up, such as a Spark session.
test: check ## all checks, and all tests that are not marked prove: what CI runs
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/recovery tests/airflow tests/spark tests/unit
	$(PY) scripts/faults.py run --some 6

test-unit: setup ## the unit tests alone: seconds, without Spark or Airflow
	$(PY) -m pytest tests/unit

docs: setup ## build the documentation site in .cache/site/, every warning an error
	.venv/bin/mkdocs build --strict
	@echo "$(CURDIR)/.cache/site/index.html"

pages: setup ## write the reference pages that are made from the code: commands, rule file, error messages
	$(PY) scripts/site_pages.py

messages: setup ## renew the expected error messages (tests/mistakes) and their page; then read what has changed
	FLOODMARK_RENEW=1 $(PY) -m pytest -q tests/unit/test_mistakes.py
	$(PY) scripts/site_pages.py

browser: setup ## Airflow's UI with the rules' pages, in a real Chromium; leaves pictures in .cache/screenshots/
	$(PY) -m pytest -m prove tests/browser

pictures: export PYTHONPATH := $(CURDIR)/jobs:$(CURDIR)/plugins:$(CURDIR)/tests
pictures: setup ## the documentation's pictures of Airflow's UI, anew: runs rules, Airflow and a real Chromium
	$(PY) scripts/pictures.py

faults: setup ## plant faults into copies of the engine, one at a time: the tests have to notice each
	$(PY) scripts/faults.py run
	$(PY) scripts/mutants.py

prove: setup ## all tests and the full crash matrix, and all planted faults, which takes long
	FLOODMARK_PROVE=1 $(PY) -m pytest -m "prove or not prove"
	$(MAKE) faults

bench: setup ## measure it beside plain Spark batch and Spark's own stateful streaming; takes some 45 minutes
	$(PY) -m bench.run
	$(PY) -m bench.kafka
	$(PY) -m bench.postgres

check: lint types imports ## ruff, mypy and the import contracts

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: setup
	.venv/bin/mypy

imports: setup
	.venv/bin/lint-imports --no-logo

wheel: setup ## build the Python package from jobs/ and plugins/, into dist/
	.venv/bin/hatchling build -t wheel

lock: ## write requirements*.txt anew from requirements*.in
	@SPARK_HOME="$(user_spark_home)" scripts/setup.sh lock

clean: ## remove what set-up, tools and runs made; not home/ and lake/, which are data
	rm -rf dist .venv .cache .airflow .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf .demo spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
