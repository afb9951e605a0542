# Everything here works from a fresh clone: the first command that needs it sets up uv, Python packages and the control
# plane's programs, and says so.
STACK ?= local
OUT ?= out/$(STACK)

UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
RUN := $(UV) run --frozen --no-sync

# Python may keep its bytecode, whatever the shell says: else each process compiles the clouds' SDKs anew, which is a third
# of its time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up down preview test tests previews lint style types bench schema policies simulate ready ready-clouds
.DEFAULT_GOAL := help

help: ## What there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

up: ready ## The stack $(STACK) on the embedded platform, put to the test
	@$(RUN) tenancy up $(STACK)

down: ready ## The embedded platform gone
	@$(RUN) tenancy down

preview: ready-clouds ## What $(STACK) will be, as a tree and as YAML in $(OUT)
	@$(RUN) tenancy preview $(STACK) --out $(OUT)

# While tests wait for servers, cores are free: the types and the previews go on beside them. What those say comes whole,
# between two lines of the tests' progress.
test: ready-clouds style ## Lint, types, contracts, tests on a real API server, the preview of every stack
	@$(MAKE) --no-print-directory -j 2 tests previews

tests: ready-clouds
	@$(RUN) python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

STACKS := $(patsubst stacks/Pulumi.%.yaml,%,$(wildcard stacks/Pulumi.*.yaml))

previews: types
	@for stack in $(STACKS); do \
	  said=$$($(RUN) tenancy preview $$stack --out out/$$stack 2>&1 >/dev/null) \
	    || { printf '\npreview of %s\n%s\n' "$$stack" "$$said"; exit 1; }; \
	done; printf '\npreviews of $(STACKS)\n'

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

.venv/ready: pyproject.toml uv.lock | $(UV)
	@echo "setting up Python packages"
	@$(UV) sync --frozen --quiet --inexact
	@touch $@

# The clouds' SDKs are extras: whoever only runs `make up` needs none of them.
.venv/ready-clouds: pyproject.toml uv.lock | $(UV)
	@echo "setting up Python packages, those of all clouds among them"
	@$(UV) sync --frozen --quiet --all-extras
	@touch .venv/ready $@

.uv/bin/uv:
	@echo "setting up uv"
	@python3 -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.8
