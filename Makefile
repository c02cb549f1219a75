# `make reproduce` and `make test` install all that they need into .venv first.
PYTHON ?= python3
STUDY ?= nano
CORES ?= all
SEEDS ?=
BIN := .venv/bin
export PYTHONNOUSERSITE := 1

.PHONY: setup reproduce plan snapshot test test-slurm lint bench gpu-check lock clean

setup: .venv/.installed

.venv/.installed: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; name another with PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --requirement requirements.lock
	touch $@

reproduce: setup
	$(BIN)/snakemake --cores $(CORES) --config study=$(STUDY) $(if $(SEEDS),seeds=$(SEEDS))

plan: setup
	$(BIN)/python -m smelt.budget plan --study $(STUDY) $(if $(SEEDS),--seeds $(SEEDS))

# Copies the report of a finished study to docs/snapshot/, to be committed.
snapshot: setup
	$(BIN)/python -m workflow.scripts.snapshot --study $(STUDY)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint --config study=smoke

test: lint
	$(BIN)/python -m pytest -n 2 -m 'not workflow' tests
	$(BIN)/python -m pytest -m 'workflow and not slurm' tests
	@$(MAKE) --no-print-directory test-slurm

# Starts a SLURM with stand-in GPUs on this machine for a few minutes; says so where it cannot.
test-slurm: setup
	$(BIN)/python -m workflow.scripts.slurm_tests

bench: setup
	$(BIN)/python -m bench.train_step

# N random faults, each into a study of its own, which must end with the same tables; STUDY=drill is a small one.
.PHONY: drill
drill: STUDY = smoke
drill: setup
	$(BIN)/python -m bench.drill --number $(or $(N),20) --seed $(or $(SEED),0) --study $(STUDY) --cores $(CORES) \
	  $(if $(FOLDER),--folder $(FOLDER))

# Wrong inputs of all kinds for every reader of files.
.PHONY: fuzz
fuzz: setup
	$(BIN)/python -m bench.fuzz --examples $(or $(N),20000) --seed $(or $(SEED),0)

gpu-check: setup
	$(BIN)/python -m bench.gpu_check

# Renews the lock from pyproject.toml; review the difference before committing it.
lock:
	$(PYTHON) workflow/scripts/lock.py

clean:
	rm -rf .venv results .snakemake
