# `make help` lists the targets. Everything that is built goes to .build, all state of a local region to .region.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help chromium portal-assets run test test-packages background-lint nightly nightly-units nightly-regions prove flakes race lint generate bench bench-compare bench-guard sdks oav fuzz build clean capture third-party kubectl nodes deploy-test postgresql tools release images vulnerabilities verify

bin := $(CURDIR)/.build/bin
# The main packages of all programs that have an image or a release, and package patterns of both modules.
programs = $(filter-out %/region-programs,$(shell git ls-files -co --exclude-standard '*/cmd/*/main.go' | xargs -n1 dirname | sed 's|^|./|'))
modules = ./... github.com/hcpmesh/hcpmesh/api/...
# All packages, which are listed at most once.
packages = $(eval packages := $$(shell go list $$(modules)))$(packages)
# Tests that run whole regions or check the whole repository: all of test/ but those that run in-process.
regions = $(filter-out %/test/acceptance %/test/deletion %/test/maestro,$(filter %/hcpmesh/test %/hcpmesh/test/%,$(packages)))
# Packages of test/ with tests for `make nightly` only. `make test` does not link them; lint compiles them.
nightly_packages = %/test/deletion %/test/node %/test/outage %/test/rotation
# The packages with the longest tests start first, so that they do not run alone at the end.
units = ./hypershift/... ./maestro/... ./cluster-service/... ./test/acceptance ./test/deletion ./test/maestro $(filter-out $(regions),$(packages))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: ## start a local region on this machine and create a cluster in it
	$(MAKE) --no-print-directory -j 2 build postgresql
	$(bin)/hcpctl region up --detach --demo

# Tests wait more than they compute, so more packages and tests run at the same time than there are cores; lint runs beside them. One go
# command runs all, because two would compile the same packages. internal/testing/nightly skips what only `make nightly` runs. Go caches the
# results of tests that have passed. The result of a test of a whole region depends on the code of all packages and on what that code reads,
# so DependOnCode of package test makes the test run again after a change. `lint` runs go vet, and test programs need no debug information.
# Builds at the same time would compile the same packages, so the tools and kubectl follow the programs of a region.
test: ## run lint and the tests that protect a change (see nightly)
	$(MAKE) --no-print-directory -j 2 build postgresql
	$(MAKE) --no-print-directory -j 2 kubectl tools
	$(MAKE) --no-print-directory --keep-going -j 2 test-packages background-lint

test-packages nightly-units nightly-regions prove flakes: export KUBEBUILDER_ASSETS = $(CURDIR)/.build/third-party/bin
# The compiler, lint, tests and their regions use more memory and less processor time. `make nightly` runs the tests with Go's default.
test-packages lint tools: export GOGC = 400
test-packages:
	@export HCPMESH_CODE=$$(git ls-files -co --exclude-standard -z ':!*.md' | xargs -0 sha256sum 2>/dev/null | sha256sum | cut -d' ' -f1); \
	go test -vet=off -ldflags=-w -p 4 -parallel 6 -timeout 60m $(filter-out $(nightly_packages),$(regions) $(units))

background-lint:
	nice -n 19 $(MAKE) --silent lint

# The parts run one after the other, and all run also if one fails. Each is a target of its own.
proofs = nightly-units nightly-regions deploy-test flakes sdks oav fuzz bench-guard
nightly: ## prove the system: all tests completely, with real nodes, every sweep, outage, drill and rotation, and published peers (hours)
	status=0; failed=; \
	for proof in $(proofs); do \
		echo "nightly: $$proof"; begun=$$SECONDS; \
		$(MAKE) --no-print-directory $$proof || { status=1; failed="$$failed $$proof"; }; \
		echo "nightly: $$proof took $$(((SECONDS - begun) / 60)) min"; \
	done; \
	[ -z "$$failed" ] || echo "nightly: failed:$$failed" >&2; \
	exit $$status

nightly-units nightly-regions deploy-test sdks oav prove: export HCPMESH_NIGHTLY = 1
# The tag nightly adds the tests with published programs and libraries that nothing else needs. They compile for several minutes of CPU time.
completely = go test -tags nightly -vet=off -ldflags=-w -count=1 -timeout 120m
tagged = $(sort $(dir $(shell git grep -l --untracked '^//go:build nightly' -- '*.go' | sed 's|^|./|')))
# What deploy-test runs.
on_nodes = %/dev-infrastructure/kubernetes %/dev-infrastructure/kubernetes/machine %/dev-infrastructure/installation %/test/skew
nightly-units: nodes postgresql chromium
	go vet -tags nightly $(tagged)
	@$(completely) -p 2 -parallel 4 $(filter-out $(on_nodes),$(units))

# Drills take longer than all other regions together, and mostly wait for alerts.
nightly-regions: build kubectl postgresql
	@$(completely) -p 2 -parallel 6 ./test/drills $(filter-out $(on_nodes),$(regions))

prove: build kubectl postgresql ## run the tests of PACKAGES, or those that match TESTS, completely, as nightly does (PACKAGES=./test/rotation)
	$(completely) -p 1 -parallel 6 -v $(if $(TESTS),-run '$(TESTS)') $(PACKAGES)

# Two processes that use all of the processors run beside the tests. grep selects the names of tests that fail.
flakes: build postgresql ## run the units three times in random order on a loaded machine, and print each test that failed at least once
	@trap 'kill $$busy' EXIT; busy=; \
	for _ in 1 2; do (while :; do :; done) & busy="$$busy $$!"; done; \
	go test -vet=off -ldflags=-w -shuffle=on -count=3 -p 3 -parallel 4 -timeout 60m $(units) >.build/flakes.txt 2>&1 || true; \
	! grep -E '^(--- FAIL|FAIL|panic:)' .build/flakes.txt

# The race detector makes tests several times slower, so two packages run at the same time.
race: build postgresql ## run the tests and one end-to-end test with Go's race detector (half an hour)
	export KUBEBUILDER_ASSETS=$(CURDIR)/.build/third-party/bin; \
	status=0; \
	go test -race -p 2 -parallel 4 -timeout 40m $(units) || status=1; \
	HCPMESH_RACE=1 go test -race -count=1 -timeout 30m -run '^TestClusterLifecycle$$' ./test/e2e || status=1; \
	exit $$status

lint: tools ## check formatting, and run go vet and staticcheck
	unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt: $$unformatted" >&2; exit 1; fi
	go vet $(modules)
	$(bin)/staticcheck $(modules)

# buf compiles for minutes, so that only who changes a definition builds it. TestDefinitionsAreGenerated fails for a definition that `make generate` has
# not checked.
generate: tools ## check the protocol buffers, and regenerate the generated code and the OpenAPI documents (needs npm)
	cd tooling/tools && go build -o $(bin)/ $$(go list tool)
	cd api/proto && $(bin)/buf lint && PATH="$(bin):$$PATH" buf generate && cat $$(find . -type f | LC_ALL=C sort) | sha256sum | cut -d' ' -f1 >../clusterservice/v1/definitions.sha256
	cd api/typespec && npm ci --silent && npm run --silent generate
	gofmt -l -w api

# The figures of the last commit in the file are the accepted ones. A worse commit is accepted by adding its figures, with the reason in the commit.
results = test/bench/results.tsv
bench: third-party postgresql ## run the benchmarks, print the table of results, add it to test/bench/results.tsv, and write CPU profiles to .build/profiles
	go run ./test/bench -record $(results) -profiles .build/profiles
	tooling/third-party/build.sh maestro
	go test -tags nightly ./maestro/conformance -run none -bench Maestro -benchtime 1x -timeout 30m

# $(or) would take the commas as separators.
bench-compare bench-guard: ONLY = create,read,frontend
bench-compare: third-party postgresql ## measure the commit REF and this checkout alternately and print the ratios (ONLY=create,read,frontend)
	go run ./test/bench -runs 50 -only $(ONLY) -compare $(REF)

bench-guard: third-party postgresql
	go run ./test/bench -runs 50 -only $(ONLY) -compare $$(tail -n 1 $(results) | cut -f 2) -limit 1.15

capture: third-party postgresql ## save the data of a region of the newest release in releases.yaml as test data
	go test -count=1 -timeout 60m -v -run '^TestCapture$$' ./test/skew -capture

sdks: kubectl postgresql ## check the OpenAPI documents against ARM's rules, generate typed clients, and test a region with them
	$(needs-node) \
	(cd api/typespec && npm ci --silent && npm run --silent clients); \
	(cd test/clients/sdk && npm ci); \
	node test/clients/sdk/lint.mjs --documents api/openapi --work .build/sdks/lint; \
	node test/clients/sdk/generate.mjs --documents api/openapi --into .build/sdks; \
	go test -count=1 -timeout 60m -parallel 4 -v -run '^TestTypedClients' ./test/e2e -sdks $(CURDIR)/.build/sdks

oav: kubectl postgresql ## record the tests' HTTP traffic and validate it against the OpenAPI documents with oav
	$(needs-node) \
	(cd test/oav && npm ci); \
	rm -rf .build/traffic; \
	HCPMESH_TRAFFIC_DIR=$(CURDIR)/.build/traffic go test -count=1 -p 1 -timeout 60m $(recorded); \
	node test/oav/validate.mjs --traffic .build/traffic --documents api/openapi

# The transcript has what the tests have shown, by section; one without a text is an error.
deploy-test: nodes images third-party postgresql ## run the tests of deployments on clusters of real Kubernetes nodes, from the connections of nodes to the loss of a service cluster and the deletion of a region, and those of the previous release
	rm -f .build/transcript.txt
	export HCPMESH_TRANSCRIPT=$(CURDIR)/.build/transcript.txt; \
	status=0; \
	go test -count=1 -v ./dev-infrastructure/kubernetes/machine || status=1; \
	go test -count=1 -timeout 30m -v ./dev-infrastructure/kubernetes || status=1; \
	go test -count=1 -timeout 120m -v ./dev-infrastructure/installation || status=1; \
	go test -count=1 -timeout 60m -v ./test/skew || status=1; \
	for section in 'nodes' 'installation' 'customer and engineer' 'upgrade under load' 'drain and loss of a node' 'rollback' 'previous release' 'loss of the service cluster' 'deletion of the region'; do \
		printf '\n%s\n' "$$section"; \
		grep "^$$section | " .build/transcript.txt | sed 's/^[^|]*| /    /' | grep . || { echo '    nothing was shown'; status=1; }; \
	done; \
	exit $$status

# The packages whose HTTP traffic is recorded.
recorded = ./frontend/pkg/server ./test/e2e
needs-node = if ! command -v node >/dev/null; then echo "$@: skipped: Node 20 or later is not installed"; exit 0; fi;

fuzz: ## run all fuzz targets for 10 s each (FUZZTIME=10m for longer)
	tooling/fuzz.sh $(or $(FUZZTIME),10s)

build: ## build the programs of a region, ours and third-party, and hcpctl
	tooling/build.sh hcpctl

# The two builds have caches of their own, so each compiles every package.
release: ## build the programs of a commit twice, compare them, and write bills of materials and the provenance to .build/release
	go run ./tooling/supplychain/cmd/supplychain release -into .build/release $(programs)

# IMAGES="frontend backend" builds only those.
images: ## build the container images into .build/images
	go run ./tooling/images/cmd/images build -into .build/images $(IMAGES)

# VULNDB=URL is another database, for example file:///folder. The Go project's database is the default; while it cannot be reached,
# the check is skipped.
vulnerabilities: ## search the programs for calls of functions with known vulnerabilities
	mkdir -p $(bin)
	cd tooling/tools/govulncheck && go build -o $(bin)/ $$(go list tool)
	go run ./tooling/supplychain/cmd/supplychain vulnerabilities -govulncheck $(bin)/govulncheck -database "$(VULNDB)" $(programs)

verify: ## compare the downloaded modules with go.sum
	go mod verify
	cd tooling/tools && go mod verify
	cd tooling/tools/govulncheck && go mod verify

clean: ## stop the local region and remove everything in .build and .region
	if [ -x $(bin)/hcpctl ]; then $(bin)/hcpctl region down --purge; fi
	rm -rf .build .region
	git worktree prune 2>/dev/null || true

third-party:
	tooling/third-party/build.sh

kubectl: ## build kubectl into .build/third-party/bin
	tooling/third-party/build.sh kubectl

nodes: kubectl ## build and install what real Kubernetes nodes need (Linux, root)
	tooling/nodes.sh

chromium: ## install headless Chromium for the browser tests of the portal (Debian, root)
	tooling/chromium.sh

portal-assets: ## fetch the portal's vendored files again, as admin/pkg/portal/assets/lock.json lists them (npm)
	go test ./admin/pkg/portal -run '^TestVendoredFilesMatchTheLock$$' -fetch

postgresql:
	tooling/postgresql.sh

tools:
	mkdir -p $(bin)
	cd tooling/tools && go build -o $(bin)/ honnef.co/go/tools/cmd/staticcheck
