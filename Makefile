# Needs git, make and python3 (3.11 or newer) with venv; everything else is fetched on first use.
# Another Python for one call: make PYTHON=python3.13 demo
PYTHON ?= python3
ARGS ?=
VERSIONS ?= 1.30 1.33 1.36
BIN := .venv/bin
# Modules whose tests need no cluster; their coverage is reported.
PURE := */koord/core/*,*/koord/api/*,*/koord/answers/*,*/koord_migrate/*
# The tests that need no cluster. Those in tests/model run beside the others.
UNIT := -m "not sandbox and not slow"
# Tests of rules take half of the time of all unit tests: they run beside the others.
RULES := $(addprefix tests/,conformance core device gang numa placement preemption quota queue \
	recorded reservation suspend topology)
export UV_PYTHON_DOWNLOADS := never
# Compile once, which makes the first start of every command faster.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
# Playwright comes without its browsers: Debian's is driven.
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1
# Use the system certificates, which may include a company's own authority.
export UV_SYSTEM_CERTS ?= true
.DEFAULT_GOAL := help
.PHONY: page page-check page-test controllers help demo test coverage test-versions check soak laws bench format crds policies site reference chart image audit clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

demo: .venv/ready ## place a gang in a cluster on this machine, no containers (ARGS=--keep leaves it up)
	@$(BIN)/koord demo $(ARGS)

test: .venv/ready ## run all tests, also those against a real API server (ARGS="-k gang" selects some)
	@$(BIN)/koord sandbox build
	@$(BIN)/pytest $(ARGS)

# Examples are the same in every run, and so is the order of sets, on which the model's courses depend.
check coverage: export PYTHONHASHSEED := 0
check: .venv/ready ## run all checks that need no cluster: style, types, layers, generated files, unit tests
	@$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/lint-imports --no-logo
	@$(BIN)/koord crds --check
	@mkdir -p build/tests
	@$(BIN)/pytest $(UNIT) tests/model --junit-xml=build/tests/model.xml >build/tests/model.log 2>&1 & model=$$!; \
		$(BIN)/pytest $(UNIT) $(RULES) --junit-xml=build/tests/rules.xml >build/tests/rules.log 2>&1 & rules=$$!; \
		$(BIN)/pytest $(UNIT) $(patsubst %,--ignore=%,tests/model $(RULES)) --junit-xml=build/tests/unit.xml; failed=$$?; \
		wait $$rules || failed=1; wait $$model || failed=1; \
		cat build/tests/rules.log build/tests/model.log; exit $$failed

coverage: .venv/ready ## run the tests that need no cluster under coverage, several times slower, and report it
	@$(BIN)/coverage run -m pytest $(UNIT) --ignore=tests/model $(ARGS)
	@$(BIN)/coverage report --include="$(PURE)"

test-versions: .venv/ready ## run the operators' tests on older and newer Kubernetes (VERSIONS="1.33" selects)
	@failed=0; for version in $(VERSIONS); do \
		export KOORD_KUBERNETES=$$version && $(BIN)/koord sandbox build && \
		$(BIN)/pytest -m "sandbox and not slow" tests/operators tests/api $(ARGS) || failed=1; \
	done; exit $$failed

controllers: .venv/ready ## build the controllers of job frameworks and play jobs on them, minutes each (ARGS="-k jobset" selects)
	@$(BIN)/koord sandbox build
	@$(BIN)/pytest -m controllers tests/frameworks $(ARGS)

soak: .venv/ready ## run crash scenarios and random operations in a model of a cluster, random quota trees and reservations (ARGS="--seed 7")
	@$(BIN)/python -m tests.model.soak $(ARGS)
	@$(BIN)/python -m tests.quota.soak
	@$(BIN)/python -m tests.framework.soak
	@$(BIN)/python -m tests.preemption.soak
	@$(BIN)/python -m tests.reservation.soak

laws: .venv/ready ## try each law of the tests on random examples: EXAMPLES=10000 of each, ARGS="tests/queue" selects
	@EXAMPLES=$(EXAMPLES) $(BIN)/pytest $(UNIT) --hypothesis-profile=laws --timeout=0 $(ARGS)

bench: .venv/ready ## measure placement, as a share of what the API server can do (ARGS="--quick")
	@$(BIN)/koord sandbox build
	@$(BIN)/python -m benchmarks $(ARGS)

format: .venv/ready ## format the sources
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

crds: .venv/ready ## generate crds/ from the models
	@$(BIN)/koord crds

policies: .venv/ready ## generate the lists of protected keys in manifests/
	@$(BIN)/python tools/policies.py

site: .tools/ready ## build the documentation as a site in build/site (ARGS="serve" shows it)
	@NO_MKDOCS_2_WARNING=1 .tools/venv/bin/uv run --frozen --isolated --only-group site mkdocs $(or $(ARGS),build --strict)

reference: .venv/ready ## generate docs/reference/ from the code
	@$(BIN)/python tools/reference.py

chart: .venv/ready ## generate the templates of charts/ from manifests/
	@$(BIN)/python tools/chart.py

image: ## build the image, its base pinned by digest (needs docker with buildx, and the registry)
	@base=$$(sed -n 's/^ARG BASE=//p' Dockerfile) && \
	digest=$$(docker buildx imagetools inspect $$base --format '{{.Manifest.Digest}}') && \
	docker buildx build --load --build-arg BASE=$$base@$$digest \
	  --build-arg REVISION=$$(git rev-parse HEAD) --tag koord-operators:0.1.0 $(ARGS) .

audit: .tools/ready ## look up known vulnerabilities of all packages in uv.lock (needs the JSON API of pypi.org)
	@mkdir -p build && .tools/venv/bin/uv export --frozen --quiet --all-packages --all-groups --no-emit-workspace --output-file build/locked.txt
	@.tools/venv/bin/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement build/locked.txt $(ARGS)

page: page/node_modules .venv/ready ## build the page of `koord page` into the package (needs Node.js and the npm registry)
	@$(BIN)/python tools/page_types.py
	@cd page && npx tsc --noEmit && node build.mjs

page-check: page/node_modules ## build the page again, and say whether that is what is committed
	@cd page && npx tsc --noEmit && node build.mjs ../build/static
	@diff -r build/static operators/koord/see/static

page-test: .tools/ready ## look at the page in Chromium (installs Playwright, without its browsers)
	@$(MAKE) --always-make .venv/ready SYNC="--group page"
	@$(BIN)/pytest tests/page $(ARGS)

page/node_modules: page/package-lock.json
	@cd page && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

clean: ## remove installed tools and build results
	@rm -rf .tools .venv .*_cache .hypothesis .coverage* build dist

.tools/ready: tools/uv.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit(f"Python 3.11 or newer is needed, $(PYTHON) is {v[0]}.{v[1]}; name another: make PYTHON=python3.13 …")'
	@$(PYTHON) -m venv .tools/venv && .tools/venv/bin/pip install --disable-pip-version-check --require-hashes --only-binary :all: -r $< && touch $@

.venv/ready: .tools/ready pyproject.toml uv.lock $(wildcard contrib/*/pyproject.toml)
	@.tools/venv/bin/uv sync --frozen --all-packages $(SYNC) --python $(PYTHON) && touch $@
