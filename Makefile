# Set-up and the commands of every day; `make` alone lists them.

PYTHON ?= python3
COMMA := ,
EXTRAS := dev$(COMMA)examples$(COMMA)onnx$(COMMA)serve$(COMMA)sweep$(if $(GPU),$(COMMA)gpu)
STAMP := .venv/.setup-$(subst $(COMMA),-,$(EXTRAS))
BIN := .venv/bin

.PHONY: help setup run test prove lint browser
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## make .venv and install; does nothing when nothing changed (GPU=1: with CUDA libraries)

run: setup  ## the main job: the digits from raw data to a registered model
	$(BIN)/millstream run conf/digits.yaml

test: setup  ## the tests, without the long proofs
	$(BIN)/python -m pytest -m "not prove" -n 2 --dist loadfile

prove: setup browser  ## the long proofs, on real servers and in a real browser
	$(BIN)/python -m pytest -m prove -n 2 --dist loadfile

lint: setup  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/millstream deployments --check
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec conf/docker/compose.yaml

browser:
	@command -v chromium >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } || \
	  { echo "make: the browser proofs need Debian's chromium on the PATH" >&2; exit 1; }

$(STAMP): pyproject.toml conf/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo \
	  "make: '$(PYTHON)' is not a Python 3.11, 3.12 or 3.13; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || echo "make: installing into .venv; this takes a few minutes"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c conf/constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
