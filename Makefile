# The few things there are to do. Everything that is built lands in .build, everything a region keeps in .region.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test race lint generate bench peers sweeps cascade contract restore bad-day clients sdks oav fuzz build clean third-party postgresql tools

bin := $(CURDIR)/.build/bin
# Every module of the workspace, as package patterns; test/ apart, because its tests run whole regions.
modules = $(shell go list -m -f '{{.Dir}}' | sed 's|^$(CURDIR)|.|; s|$$|/...|')
# Those whose tests take longest begin first, so that they do not end last and alone.
long = ./hypershift/... ./maestro/... ./cluster-service/... ./test/deletion
units = $(long) $(filter-out ./test/... $(long),$(modules))
# What runs or looks at the whole: all of test/ but test/deletion, whose region is within the test.
regions = $(filter-out %/test/deletion,$(shell go list ./test/...))

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: build postgresql ## run the whole region on this machine and create a cluster in it
	$(bin)/hcpctl region up --detach --demo

# Tests wait more than they compute, so more packages and more tests at a time run than there are cores. Whole regions run
# one after the other, and by themselves: their tests would time what the others do. -short takes slices of the crash sweeps,
# and leaves out nothing else. Go does not run again what has passed and has not changed since; what a whole region is made of
# is every file here, which HCPMESH_SOURCES tells it. Vetting is lint's, and no debugger looks into the tests' programs.
test: ## lint, then run every test (long sweeps as slices: see sweeps, cascade, contract and bad-day)
	$(MAKE) --no-print-directory -j 3 third-party postgresql lint
	export KUBEBUILDER_ASSETS=$(CURDIR)/.build/third-party/bin; \
	status=0; \
	go test -vet=off -ldflags=-w -short -p 3 -parallel 4 -timeout 30m $(units) || status=1; \
	export HCPMESH_SOURCES=$$(git ls-files -co --exclude-standard -z | xargs -0 sha256sum 2>/dev/null | sha256sum | cut -d' ' -f1); \
	go test -vet=off -ldflags=-w -p 1 -parallel 8 -timeout 60m $(regions) || status=1; \
	exit $$status

# Several times as slow as without, and so with two packages at a time. What takes longest here are the sweeps: with -short
# each is tried at a few of its points.
race: third-party postgresql ## run the tests under Go's race detector, and the life of a cluster with programs built for it (half an hour)
	export KUBEBUILDER_ASSETS=$(CURDIR)/.build/third-party/bin; \
	status=0; \
	go test -race -short -p 2 -parallel 4 -timeout 40m $(units) || status=1; \
	HCPMESH_RACE=1 go test -race -count=1 -timeout 30m -run '^TestClusterLifecycle$$' ./test/e2e || status=1; \
	exit $$status

lint: tools ## check formatting, go vet, staticcheck and the protobuf definitions
	unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt: $$unformatted" >&2; exit 1; fi
	go vet $(modules)
	$(bin)/staticcheck $(modules)
	cd api/proto && $(bin)/buf lint

generate: tools ## write the generated code and the OpenAPI documents again (needs npm)
	cd api/proto && PATH="$(bin):$$PATH" buf generate
	cd api/typespec && npm ci --silent && npm run --silent generate
	gofmt -l -w api

bench: third-party postgresql ## measure the region and print the table of figures
	go run ./test/bench
	tooling/third-party/build.sh maestro
	go test ./maestro/conformance -run none -bench Maestro -benchtime 1x -timeout 30m

peers: third-party postgresql ## build the published Maestro and test ours against it
	tooling/third-party/build.sh maestro
	go test ./maestro/conformance -run Published -count 1 -v

sweeps: third-party postgresql ## kill processes at every point of an upgrade, a revocation, a deletion and the rest, not just at some
	KUBEBUILDER_ASSETS=$(CURDIR)/.build/third-party/bin go test -count=1 -timeout 60m -parallel 4 ./cluster-service/pkg/app
	go test -count=1 -timeout 60m -parallel 4 -run TestSweep ./hypershift/pkg/app
	go test -count=1 -timeout 60m -parallel 4 -run TestSweep ./maestro/conformance
	go test -count=1 -timeout 60m -parallel 4 -run TestSweep ./backend/pkg/app ./frontend/pkg/server ./admin/pkg/server

cascade: ## delete a subscription with 10,000 clusters, killing the backend several times
	cd backend && go test -count=1 -timeout 60m -v -run 'TestCascade$$' ./pkg/app -cascade-clusters 10000

contract: third-party postgresql ## run all of the frontend's cases against a whole region, not just a slice
	go test -count=1 -timeout 60m -parallel 8 ./test/contract -every 1

restore: postgresql ## restore Cluster Service's database to earlier states under random histories of a hundred customers
	go test -count=1 -timeout 60m -v ./test/restore -restore-clusters 100 -restore-seeds 5

bad-day: third-party postgresql restore ## kill every process of a region in turn while twenty clusters come and go, and restore its fleet
	go test -count=1 -timeout 60m -v -run '^TestNothingIsLost|^TestRestoredFleetIsRepaired' ./test/e2e -bad-day-clusters 20 -restored-day

clients: third-party postgresql ## drive a region with the published clients for Go and Node
	$(needs-node) \
	(cd test/clients/npm && npm ci); \
	go test -count=1 -timeout 30m -v -run '^TestClusterLifecycle' ./test/e2e

sdks: third-party postgresql ## hold the contract against ARM's rules, generate typed clients from it, and drive a region with them
	$(needs-node) \
	(cd api/typespec && npm ci --silent && npm run --silent clients); \
	(cd test/clients/sdk && npm ci); \
	node test/clients/sdk/lint.mjs --documents api/openapi --work .build/sdks/lint; \
	node test/clients/sdk/generate.mjs --documents api/openapi --into .build/sdks; \
	go test -count=1 -timeout 60m -parallel 4 -v -run '^TestTypedClients' ./test/e2e -sdks $(CURDIR)/.build/sdks

oav: third-party postgresql ## record the tests' traffic and hold it against the OpenAPI documents with oav
	$(needs-node) \
	(cd test/oav && npm ci); \
	rm -rf .build/traffic; \
	HCPMESH_TRAFFIC_DIR=$(CURDIR)/.build/traffic go test -count=1 -p 1 -timeout 60m $(recorded); \
	node test/oav/validate.mjs --traffic .build/traffic --documents api/openapi

# What is recorded: the artifact cases and all other tests of the frontend, and a whole region's.
recorded = ./frontend/pkg/server ./test/e2e
needs-node = if ! command -v node >/dev/null; then echo "$@: skipped: it needs Node 20 or later"; exit 0; fi;

fuzz: ## run every fuzz target of all modules for 30 s each (FUZZTIME=10m for longer)
	tooling/fuzz.sh $(or $(FUZZTIME),30s)

build: third-party ## build all programs
	mkdir -p $(bin)
	go build -o $(bin)/ $$(git ls-files -co --exclude-standard '*/cmd/*/main.go' | grep -v '^tooling/third-party/' | xargs -n1 dirname | sed 's|^|./|')

clean: ## stop the region and remove everything that was built or kept
	if [ -x $(bin)/hcpctl ]; then $(bin)/hcpctl region down --purge; fi
	rm -rf .build .region

third-party:
	tooling/third-party/build.sh

postgresql:
	tooling/postgresql.sh

tools:
	mkdir -p $(bin)
	cd tooling/tools && GOWORK=off go build -o $(bin)/ $$(GOWORK=off go list tool)
