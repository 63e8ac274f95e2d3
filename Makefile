# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Many small tensors: one thread per library, parallelism by processes.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export XLA_FLAGS ?= --xla_cpu_multi_thread_eigen=false

.PHONY: demo test machines attacks quick check lint docs pictures notebooks format bench dist clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, train a language agent across clients (3 minutes), print where its page is"
	@echo "make test    set up, run the checks and all tests but those of make machines"
	@echo "make machines  SuperLinks and SuperNodes that are killed, attacked or fenced in (10 minutes)"
	@echo "make attacks  what an adversary of a federation tries: tests/attacks, with SuperLinks and SuperNodes"
	@echo "make quick   unit tests of the mathematics and of every layer, while you work (a minute on two cores)"
	@echo "make lint    ruff, mypy, and the documentation as a site"
	@echo "make check   the same, and every command and notebook that README and docs show, run"
	@echo "make docs    the documentation as a site, in build/site; a warning is an error"
	@echo "make pictures  draw the figures of the documentation, and photograph watch, report and feedback"
	@echo "make notebooks  run the notebooks of the documentation and store what comes out"
	@echo "make dist    sdist and wheel, in dist/"
	@echo "make bench   all benchmarks (BENCH=--quick for under a minute each)"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	test -d models/household-tiny || $(BIN)/fedrl warmstart household \
		--out models/household-tiny --steps 300 --batch 32 --listed --world.size tiny
	$(BIN)/fedrl sweep fedagent/baselines --out runs/demo

# What fails (exit status 1) is run once more, alone: two cores shared by browsers, servers and
# learners make some waits too long. What passes only then is named, as a place to mend.
test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -m "not machines" --durations=40 || { test $$? -eq 1 && \
		echo "once more, alone: what passes now failed beside others, and wants mending" && \
		$(BIN)/python -m pytest -m "not machines" --last-failed --last-failed-no-failures none -rfEp; }

machines: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m machines

# Those without SuperLinks and SuperNodes are part of `make test` as well.
attacks: $(STAMP)
	@test -d tests/attacks || { echo "there is no folder tests/attacks: nothing is attacked"; exit 1; }
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/attacks

quick: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not machines"

# `make test` has these tests but the last, which `make machines` has: it needs lint alone.
check: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -m "not machines" tests/project
	$(BIN)/python -m pytest -m machines tests/project/test_federation_commands.py

lint: $(STAMP) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(STAMP)
	$(BIN)/python docs/pictures/draw.py
	$(BIN)/python docs/pictures/screens.py

notebooks: $(STAMP)
	$(BIN)/python docs/hooks/notebook_pages.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python benchmarks/momentum.py $(BENCH)
	$(BIN)/python benchmarks/rounds.py $(BENCH)
	$(BIN)/python benchmarks/mujoco_worlds.py $(BENCH)
	$(BIN)/python benchmarks/gym.py $(BENCH)
	$(BIN)/python benchmarks/llm.py $(BENCH)
	$(BIN)/python benchmarks/discrete_worlds.py $(BENCH)
	$(BIN)/python benchmarks/fedqhd.py $(BENCH)
	$(BIN)/python benchmarks/fedrlhf.py $(BENCH)
	$(BIN)/python benchmarks/asynchrony.py $(BENCH)
	$(BIN)/python benchmarks/flower.py $(BENCH)
	$(BIN)/python benchmarks/secure.py $(BENCH)
	$(BIN)/python benchmarks/waiting.py $(BENCH)
	$(BIN)/python benchmarks/wire.py $(BENCH)
	$(BIN)/python benchmarks/load.py $(BENCH)
	$(BIN)/python benchmarks/precision.py $(BENCH)

# Where a commit is tagged, its tag and the version in the code must be the same.
dist: $(STAMP)
	$(BIN)/python -m pytest -q tests/project/test_release.py
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
