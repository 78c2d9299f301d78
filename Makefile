# Thin aliases: everything below is `snakemake`, `pytest` or a linter, called from the pinned environment in .venv.
#   make figures        the embedded scenario: figures, tables and report, without any download
#   make NAME           config/scenarios/NAME.yaml, e.g. make smoke, make small-femnist, make paper
#   make plan           before anything runs: runs, ε, hours, memory and disk of SCENARIO (default: embedded)
#   make bench          private steps against plain SGD and other libraries;  make bench-quick  a minute's worth
#   make test           the tests;  make lint  the static gates;  make format  fixes what a tool can fix
#   make architecture   draws the packages of the library and their imports into docs/architecture.md
#   make slurm-test     the tests on a real one-node Slurm (root; INSTALL=1 installs it where it is missing)
#   make mutants        plants bugs in copies of the library: each has to be killed by a test
#   make fuzz           thousands of hostile archives, JSON files, texts and scenarios: read rightly, or refused clearly
#   make faults         kills, full disks, damaged files, lying mirrors: nothing may be lost or silently wrong
#   make help           this text
# Variables: CORES (default: all), PYTHON (3.11), SCENARIO (of plan), ARGS (passed on to snakemake or pytest).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := figures

PYTHON ?= $(or $(shell command -v python3.11),python3)
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
ARGS ?=
SCENARIO ?= embedded

BIN := .venv/bin
LOCKS := requirements.lock requirements-dev.lock pyproject.toml
STAMP := .venv/.installed-$(shell cat $(LOCKS) | $(PYTHON) -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])')
SCENARIOS := $(basename $(notdir $(wildcard config/scenarios/*.yaml)))
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES) --workflow-profile workflow/profiles/local
CONFIG_FILES = --configfile config/scenarios/$@.yaml

.PHONY: help figures plan venv test slurm-test mutants faults fuzz bench bench-quick lint architecture format clean clean-results $(SCENARIOS)

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# ---- scenarios -----------------------------------------------------------------------------------------------
figures: embedded

$(SCENARIOS): venv
	$(SNAKEMAKE) $(CONFIG_FILES) $(ARGS)
ifeq (,$(filter -n --dry-run --dryrun --unlock,$(ARGS)))
	$(SNAKEMAKE) $(CONFIG_FILES) $(ARGS) --report results/$@/report.html --report-stylesheet workflow/report/report.css
	@echo "Figures, tables and report: results/$@/"
endif

plan: venv
	$(SNAKEMAKE) plan --quiet --configfile config/scenarios/$(SCENARIO).yaml $(ARGS)
	@echo "As files: results/$(SCENARIO)/plan.txt, plan.csv"

# ---- environment ---------------------------------------------------------------------------------------------
venv: $(STAMP)

# The stamp carries a hash of the locks: an unchanged environment costs nothing and needs no network. torch goes in
# first and alone, so that pip takes a CPU build where it is offered one.
$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "error: Python 3.11 is needed (found: $$($(PYTHON) -V)); set PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	rm -f .venv/.installed-*
	touch $@

# ---- checks --------------------------------------------------------------------------------------------------
test: venv
	$(BIN)/pytest --numprocesses $(CORES) --dist loadfile $(ARGS)

# Brings Slurm up and down itself; skipped with a line that says why where that cannot be. SUBJECTDP_SLURM_TESTS=long runs more.
slurm-test: venv
	SUBJECTDP_SLURM_TESTS=$${SUBJECTDP_SLURM_TESTS:-1} $(BIN)/pytest tests/slurm -rs $(ARGS)

# Plants bugs in a copy of the library; the last line reads `N mutants, N killed`.
mutants: venv
	PYTHONPATH=tests $(BIN)/python -m mutants.run --jobs $(CORES) $(ARGS)

# Breaks things around real trainings and downloads; the last line reads `N faults, N recovered`.
faults: venv
	PYTHONPATH=tests:workflow/lib OMP_NUM_THREADS=1 $(BIN)/python -m faults.run $(ARGS)

# 12,000 inputs, a few minutes; those that fail are kept. The last line reads `N inputs, N right, N refused, N failed`.
fuzz: venv
	PYTHONPATH=tests:workflow/lib OMP_NUM_THREADS=1 $(BIN)/python -m hostile.run --keep results/logs/hostile $(ARGS)

# About twenty minutes on an idle machine; tables in results/bench. Ends with the goals: met, or missed by how much.
bench: venv
	$(BIN)/subjectdp bench $(ARGS)

# Under a minute, against loose floors; exit code 1 where one is broken. Tables in results/bench/quick.
bench-quick: venv
	$(BIN)/subjectdp bench --quick $(ARGS)

lint: venv
	.ci/lint

# Draws the packages of the library and their imports into docs/architecture.md.
architecture: venv
	PYTHONPATH=tests:workflow/lib $(BIN)/python -m architecture

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/rules
	$(BIN)/shfmt --write --indent 2 .ci/run .ci/lint tests/slurm/*.sh

# ---- cleaning ------------------------------------------------------------------------------------------------
clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist workflow/lib/subjectdp.egg-info
	find workflow tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Deletes every result, prepared data included; the environment stays.
clean-results:
	find results -mindepth 1 -maxdepth 1 ! -name .gitkeep -exec rm -rf {} +
	rm -rf .snakemake
