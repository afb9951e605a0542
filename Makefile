# Everything here works from a fresh clone: the first command that needs it sets up uv, Python packages and the control
# plane's programs, and says so.
STACK ?= local
OUT ?= out/$(STACK)

# A home that cannot be written to, as in many containers: caches and state are kept in .home of this folder instead.
ifneq ($(shell [ -d "$$HOME" ] && [ -w "$$HOME" ] && echo writable),writable)
export HOME := $(CURDIR)/.home
$(shell mkdir -p "$(CURDIR)/.home")
endif

UV_VERSION := 0.13.8
PYTHONS := 3.11 to 3.14
OWN_UV := $(if $(shell command -v uv 2>/dev/null),,.uv/bin/uv)
UV := $(or $(OWN_UV),uv)
RUN := $(UV) run --frozen --no-sync
# On a terminal uv draws its own progress; elsewhere its list of packages would be all that one sees.
SYNC = $(UV) sync --frozen $$([ -t 2 ] || echo --quiet)

.PHONY: up down preview test tests lint style types bench schema policies simulate ready ready-clouds
.DEFAULT_GOAL := help

help: ## What there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

up: ready ## The stack $(STACK) on the embedded platform, put to the test
	@$(RUN) tenancy up $(STACK)

down: ready ## The embedded platform gone
	@$(RUN) tenancy down

preview: ready-clouds ## What $(STACK) will be, as a tree and as YAML in $(OUT)
	@$(RUN) tenancy preview $(STACK) --out $(OUT)

# While tests wait for servers, cores are free: the types are checked beside them.
test: ready-clouds style ## Lint, types, contracts, tests on a real API server, the preview of every stack
	@$(MAKE) --no-print-directory -j 2 tests types

tests: ready-clouds
	@$(RUN) python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(TESTS)

lint: style types

style: ready-clouds
	@$(RUN) ruff check
	@$(RUN) ruff format --check

types: ready-clouds
	@said=$$({ $(RUN) basedpyright && PYTHONPATH=policy:policy/workloads:policy/clouds $(RUN) lint-imports; } 2>&1); \
	  failed=$$?; printf '\n%s\n' "$$said"; exit $$failed

bench: ready-clouds ## The offline preview of 1 to 1,000 teams, and 1,000 resources through the policy packs
	@$(RUN) python -m benchmarks.preview
	@$(RUN) python -m benchmarks.policies
	@$(RUN) python -m benchmarks.admission

simulate: ready ## What Kueue would do in the scenarios of SCENARIOS=FILE, written to OUT=FILE
	@$(RUN) tenancy simulate --scenarios $(SCENARIOS) --out $(OUT)

schema: ready ## stacks/schema.json, from the model
	@$(RUN) tenancy schema --out stacks/schema.json

policies: ready ## docs/policies.md, from the rules
	@PYTHONPATH=policy:policy/workloads:policy/clouds $(RUN) python -m document

ready: .venv/ready

ready-clouds: .venv/ready-clouds

.venv/ready: pyproject.toml uv.lock | $(OWN_UV)
	@echo "installing Python packages"
	@$(SYNC) --inexact || { $(FAILED); }
	@touch $@

# The clouds' SDKs are extras: `make up` needs none of them.
.venv/ready-clouds: pyproject.toml uv.lock | $(OWN_UV)
	@echo "installing Python packages with the SDKs of all clouds (1.2 GB)"
	@$(SYNC) --all-extras || { $(FAILED); }
	@touch .venv/ready $@

FAILED = echo "error: Python packages are not installed (see above). Python $(PYTHONS), a package index and 2 GB of\
 disk are required; run the same command again to continue" >&2; exit 1

# A virtual environment where Python can make one; Debian's has pip in packages of its own.
.uv/bin/uv:
	@command -v python3 >/dev/null || { echo "error: no python3 on the PATH; install Python $(PYTHONS)" >&2; exit 1; }
	@echo "installing uv $(UV_VERSION)"
	@rm -rf .uv
	@{ python3 -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); } 2>.uv.log \
	  || python3 -m pip install --quiet --target .uv uv==$(UV_VERSION) 2>>.uv.log \
	  || { cat .uv.log >&2; rm -rf .uv .uv.log; echo "error: uv is not installed (see above); install uv, or venv and pip\
 for python3 (on Debian: apt install python3-venv)" >&2; exit 1; }
	@rm -f .uv.log
