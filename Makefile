# Two commands do everything; both set up their own environment first:
#   make models   the main job on the default config: models and report (make models ARCH=sm_90: of another arch)
#   make test     the whole test suite
# Without ROCm, `make toolchain` brings a HIP compiler and a Composable Kernel tree; without CUDA,
# `make cuda-toolchain` brings nvcc and CUTLASS.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

# Another variable of the call would have no effect.
UNKNOWN := $(filter-out PYTHON=% ARCH=% VENV=% TOOLCHAIN=% CRAWL=%,$(MAKEOVERRIDES))
ifneq ($(UNKNOWN),)
$(error nothing reads $(UNKNOWN); write ARCH=sm_90 or PYTHON=python3.11, or settings behind tileseer run --config)
endif

# An environment that is there keeps the Python that made it. One that will not do is said first.
ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
ifneq ($(shell test ! -e $(VENV)/bin/python || test $(VENV)/bin/python -ef "$$(command -v $(PYTHON))" || echo other),)
OTHER = error: PYTHON=$(PYTHON) is not the Python of $(VENV); leave it out, or make $(VENV) anew: rm -rf $(VENV)
$(error $(or $(shell PYTHON="$(PYTHON)" sh envs/setup.sh check $(VENV) 2>&1),$(OTHER)))
endif
endif

TARGETS := models test lint format-check types contracts rules-check environment-dev format docs wheels environment toolchain cuda-toolchain compile-matrix emulated-matrix lock schema problems crawltest clean figures \
    reproduce reproduce-update slurm-test container-test
.PHONY: $(TARGETS)

models: $(READY)
	$(RUN) tileseer run $(if $(ARCH),--arch $(ARCH))

test: $(READY_DEV)
	$(RUN) python -m pytest --numprocesses auto --dist worksteal

.DEFAULT:
	@echo "error: nothing makes $@; make models (ARCH=sm_90 for another arch), make test; there are: $(TARGETS)" >&2
	@false

# Beside each other with `make -j lint`; `make types` alone: 20 s the first time, 2 s after that.
lint: format-check types contracts rules-check

# ruff without its cache: how imports are sorted depends on which modules there are.
format-check: $(READY_DEV)
	$(RUN) ruff check --no-cache .
	$(RUN) ruff format --no-cache --check .
	$(RUN) snakefmt --check Snakefile workflow/Snakefile workflow/rules

types: $(READY_DEV)
	$(RUN) mypy

contracts: $(READY_DEV)
	$(RUN) lint-imports --no-cache --no-logo

rules-check: $(READY_DEV)
	$(RUN) snakemake --lint

format: $(READY_DEV)
	$(RUN) ruff check --fix .
	$(RUN) ruff format .
	$(RUN) snakefmt Snakefile workflow/Snakefile workflow/rules

# The documentation as a site of static pages, in site/: open site/index.html, no server is needed.
docs: $(READY_DEV)
	$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --quiet

# Packages to install elsewhere, in dist/: tileseer, those of packages/, and tileseer-models-sm90-cudnn with the models of cuDNN's plans.
wheels: $(READY_DEV)
	$(RUN) tileseer run results/models/$(or $(ARCH),sm_90_cudnn)
	$(RUN) python tools/wheels.py results/models/$(or $(ARCH),sm_90_cudnn) --output dist

environment: $(READY)

environment-dev: $(READY_DEV)

# A HIP compiler and a Composable Kernel tree, outside of this folder; where, as tileseer.core.cache.default_folder says.
TOOLCHAIN = $(or $(filter /%,$(XDG_CACHE_HOME)),$(HOME)/.cache)/tileseer/toolchain
toolchain: $(READY)
	PYTHON="$(CURDIR)/$(VENV)/bin/python" sh envs/toolchain.sh "$(TOOLCHAIN)"

# nvcc and the CUTLASS headers from PyPI, outside of this folder as well.
cuda-toolchain: $(READY)
	PYTHON="$(CURDIR)/$(VENV)/bin/python" sh envs/cuda-toolchain.sh "$(dir $(TOOLCHAIN))cuda-toolchain"

# Which kernels of the rule sets do not compile, for config/ck_api.yaml. It goes on where it was stopped;
# of what is not tried yet, 20 kernels take 1 to 2 minutes.
compile-matrix: $(READY_DEV)
	$(RUN) python tools/compile_matrix.py

# Which kinds of kernels compute right, executed on the emulated GPU, for docs/internals/emulated.md. It goes on where it was
# stopped; four kernels take 2 to 4 minutes.
emulated-matrix: $(READY_DEV)
	$(RUN) python tools/emulated_matrix.py

# Do the models of config/reproduce.yaml have the hashes of the committed manifest?
reproduce: $(READY)
	$(RUN) python tools/reproduce.py

# After a change that is meant to change them.
reproduce-update: $(READY)
	$(RUN) python tools/reproduce.py --update

# The profile for SLURM, on a real one of four nodes on this machine. Needs root, and installs Debian's packages.
slurm-test: $(READY_DEV)
	apt-get install -y -q --no-install-recommends slurmctld slurmd slurm-client munge
	$(RUN) TILESEER_TEST_SLURM=docs/generated/slurm-test.txt python -m pytest -rs tests/workflow/test_slurm.py

# The image of envs/Dockerfile, built without a registry, and `make reproduce` in it. Needs root; installs Debian's packages.
container-test:
	apt-get install -y -q --no-install-recommends buildah crun debootstrap
	sh envs/container_test.sh "$(CURDIR)/.container"

# What users need; and with it, what developers need as well.
$(READY): envs/requirements.lock envs/setup.sh envs/openmp.py pyproject.toml setup.py packages/*/pyproject.toml
	PYTHON="$(PYTHON)" sh envs/setup.sh new "$(VENV)"
	@touch $@

$(READY_DEV): $(READY) envs/requirements-dev.lock
	sh envs/setup.sh grow "$(VENV)"
	@touch $@

# Resolve the dependencies of pyproject.toml again. Needs uv (pip install uv), which is in neither lock.
RESOLVE = uv pip compile pyproject.toml packages/amdgpu_emulator/pyproject.toml - --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command "make lock" --quiet
lock:
	echo setuptools | $(RESOLVE) --extra workflow --extra gpu --extra dev -o envs/requirements-dev.lock
	echo setuptools | $(RESOLVE) --extra workflow --extra gpu -c envs/requirements-dev.lock -o envs/requirements.lock

# Every figure of the documentation: blocks of pages, the table of results, generated pages. It reads results/ and logs/, and says
# what it had to leave as it is.
figures: $(READY_DEV)
	$(RUN) python tools/figures.py

# Write what is generated: the JSON schemas and the pages of docs/generated.
schema: $(READY_DEV)
	$(RUN) python tools/generated.py

# The environment of config/problems/crawl.txt: 1.8 GB. Where pip finds no torch for the CPU, add
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
CRAWL := .venv-crawl
$(CRAWL)/.ready: config/problems/crawl.txt
	$(PYTHON) -m venv $(CRAWL)
	$(CRAWL)/bin/pip install --quiet --no-deps --require-hashes -r config/problems/crawl.txt
	$(CRAWL)/bin/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Crawl the whole zoo again and say whether the committed tables differ.
problems: $(CRAWL)/.ready
	$(CRAWL)/bin/python tools/crawl_zoo.py --zoo config/problems/zoo.yaml --output config/problems --jobs 2
	git diff --exit-code --stat -- config/problems

# The tests of `tileseer crawl` with the real torch and onnx.
crawltest: $(CRAWL)/.ready
	$(CRAWL)/bin/python -m pytest tests/problems/test_crawl_of_own_model.py

# Remove what can be made again. What was measured stays: results/journals, and what was tuned beside models.
clean:
	find results -mindepth 1 -maxdepth 1 ! -name journals ! -name models -exec rm -rf {} +
	find results -mindepth 2 -maxdepth 2 -path 'results/models/*' ! -name '*.tuned' -exec rm -rf {} +
	rm -rf logs .snakemake
