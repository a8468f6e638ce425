# `make` lists the targets. Each target sets up what it needs, and a second run reuses it.
# Compatible with GNU make 3.81. Tools are run as `python -m tool`, because their shebangs break in long paths.

# The interpreter to use. If it is empty, scripts/find-python finds one.
PYTHON =

RUN = .venv/bin/python
FIND = found='$(PYTHON)'; [ -n "$$found" ] || found=$$(sh scripts/find-python) || exit 1

.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help environment install demo test test-quick check format house walk requirements docs bench bench-call bench-ledger bench-commands bench-steps bench-batch bench-clients bench-storage bench-messages bench-engines bench-partitions bench-console bench-scale screenshots crash-matrix kill-table ha-drill engine-drills soak plans wire-table calibrate constraints clean lowest sbom release

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

environment:
	@$(FIND); "$$found" scripts/environment.py .venv --extras all --group dev

install: environment ## Create .venv with all extras and tools at the pinned versions, and fetch the servers and interpreters of the tests
	@$(RUN) -m tests.servers.bring

demo: ## Run the demo: a shop with flaky services, a worker, and the console in your browser (in .venv-demo)
	@$(FIND); "$$found" scripts/environment.py .venv-demo --extras cli,console,ledger
	@.venv-demo/bin/python -m redrive.demo

test: install ## Run everything: check, all tests, the other interpreters, the lowest versions, requirements, docs
	@$(RUN) scripts/suites.py check tests interpreters requirements docs

test-quick: environment ## Run the unit and property tests on this interpreter only
	@$(RUN) scripts/suites.py quick

check: environment ## Run the static checks: ruff, mypy --strict, the layers
	@$(RUN) scripts/suites.py check

format: environment ## Format the code for `make check`
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format --quiet .

house: environment ## Print the figures of the code with their limits and goals (LIST=<figure> lists its locations, TIGHTEN=1 lowers the limits)
	@$(RUN) -m tests.architecture.house $(if $(LIST),--list $(LIST)) $(if $(TIGHTEN),--tighten)

walk: environment ## Count the files that one job and one partition pass through (FILES=1 lists them)
	@$(RUN) -m tests.architecture.walk $(if $(FILES),--files)

requirements: install ## Run the tests of requirements, and print a line for each requirement
	@$(RUN) scripts/suites.py requirement_tests requirements

docs: environment ## Build the documentation into site/, strictly
	@$(RUN) scripts/suites.py docs

screenshots: install ## Take the screenshots of the console into docs/pictures
	@$(RUN) scripts/screenshots.py

crash-matrix: environment ## Crash at every crash point, on both databases, in every way, and print lost and duplicated jobs
	@$(RUN) -m tests.acceptance.crash.matrix
	@$(RUN) -m tests.acceptance.partitions.matrix
	@REDRIVE_FULL=1 $(RUN) -m pytest -q tests/acceptance/messages/test_crash.py

kill-table: environment ## Kill, poison, stop and drain workers on both databases, and print the results of their jobs
	@$(RUN) -m tests.acceptance.worker.kill_table

engine-drills: install ## Kill servers of the engines under load, and print lost and duplicated messages (ENGINE=nats runs one engine)
	@$(RUN) -m tests.acceptance.engines.drills $(ENGINE)

ha-drill: environment ## Kill the primary of a Patroni cluster five times under load, and print lost jobs and downtimes (KILLS=5)
	@$(RUN) -m tests.acceptance.ha.drill $(KILLS)

soak: environment ## Run mixed load with random faults, check the history, and draw what grows (MINUTES=120 for each database)
	@$(RUN) -m tests.acceptance.soak.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(DATABASE),--database $(DATABASE)) $(if $(SEED),--seed $(SEED))

plans: environment ## Check the plans of frequent statements with a million jobs, on both databases
	@REDRIVE_FULL=1 $(RUN) -m pytest -q tests/conformance/ledger/test_plans.py tests/conformance/partitions/test_plans.py

calibrate: environment ## Compare `redrive simulate` with 200 real clients and a real server, for 12 minutes
	@$(RUN) -m tests.acceptance.simulation.calibration

wire-table: install ## Count the requests of each storage backend after failures, into docs/reference/wire.md
	@$(RUN) -m tests.acceptance.wire.table --write

bench: ## Run every benchmark, also if one misses a target
	@$(MAKE) --no-print-directory --keep-going bench-call bench-ledger bench-commands bench-steps bench-batch bench-clients bench-storage bench-messages bench-engines bench-partitions bench-console bench-scale

bench-call: ## Measure a call against the other retry libraries (in .venv-bench)
	@$(FIND); "$$found" scripts/environment.py .venv-bench --requirements benchmarks/requirements.txt
	@.venv-bench/bin/python benchmarks/call.py

bench-ledger: ## Measure the ledger against raw loops and other libraries (in .venv-bench-ledger)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-ledger --extras postgres --requirements benchmarks/requirements-ledger.txt
	@.venv-bench-ledger/bin/python benchmarks/ledger.py

bench-commands: ## Measure the whole worker against other libraries (in .venv-bench-ledger)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-ledger --extras postgres --requirements benchmarks/requirements-ledger.txt
	@.venv-bench-ledger/bin/python benchmarks/commands.py

bench-steps: ## Measure jobs of ten steps against DBOS and Temporal (in .venv-bench-steps)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-steps --extras postgres --requirements benchmarks/requirements-steps.txt
	@.venv-bench-steps/bin/python benchmarks/steps.py

bench-batch: environment ## Measure the batch layer against its bare sender, on a local Postgres
	@$(RUN) benchmarks/batch.py

bench-partitions: environment ## Measure a million partitions, and compare the handling of faults (REDRIVE_BENCH_PARTITIONS=10000000)
	@$(RUN) benchmarks/partitions.py

bench-console: environment ## Measure every console page with a thousand and a million jobs, dead letters and partitions
	@$(RUN) benchmarks/console.py

bench-scale: environment ## Measure how the cost of each operation grows with rows, job types, tenants, payloads and workers
	@$(RUN) benchmarks/scale.py

bench-clients: ## Measure the HTTP clients and the send buffer against bare libraries (in .venv-bench-clients)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-clients --extras http,grpc --requirements benchmarks/requirements-clients.txt
	@.venv-bench-clients/bin/python benchmarks/clients

bench-storage: ## Measure the storage backends against their clients and remote-store (in .venv-bench-storage)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-storage --extras s3-pyarrow,azure,obstore,sftp --requirements benchmarks/requirements-storage.txt
	@.venv-bench-storage/bin/python benchmarks/storage.py

bench-messages: ## Measure messages against raw loops and other libraries (in .venv-bench-messages; arq in .venv-bench-arq)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-messages --extras postgres,redis --requirements benchmarks/requirements-messages.txt
	@$(FIND); "$$found" scripts/environment.py .venv-bench-arq --requirements benchmarks/requirements-arq.txt
	@.venv-bench-messages/bin/python benchmarks/messages.py

bench-engines: ## Measure the engines with 1 to 8 worker processes, against their own loops and faststream (in .venv-bench-engines)
	@$(FIND); "$$found" scripts/environment.py .venv-bench-engines --extras postgres,redis,nats,kafka,rabbitmq --requirements benchmarks/requirements-engines.txt
	@.venv-bench-engines/bin/python benchmarks/engines.py

constraints: environment ## Pin the dependencies in constraints.txt and hashes.txt, for 3.11 and newer (UPGRADE=1: newest versions)
	@$(RUN) scripts/constraints.py $(if $(UPGRADE),--upgrade)

lowest: environment ## Run the tests of adapters with the lowest version of each library that an extra admits (in .venv-lowest, QUICK=1: a minute)
	@$(RUN) scripts/lowest.py $(if $(QUICK),--quick)

sbom: environment ## Write the bill of materials of Redrive with all extras into dist/ (CycloneDX)
	@$(RUN) scripts/sbom.py

release: environment ## Build and check the files of a release in dist/, without publishing them (REPOSITORY=https://git.example/owner/redrive)
	@REPOSITORY='$(REPOSITORY)' $(RUN) scripts/release.py

clean: ## Remove the files of the other targets
	rm -rf .venv .venv-* .cache .hypothesis .pytest_cache .ruff_cache .mypy_cache site build dist
