# Every target that a person types has a help line: make help.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Tests and the cluster that they run on follow each other.
.NOTPARALLEL:

# The version of Kubernetes that tests run against.
K8S_VERSION ?= 1.36.3
export K8S_VERSION

# The toolchain is the one that is installed, and a build does not depend on the state of the repository.
export GOTOOLCHAIN := local
export GOFLAGS := $(strip $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false)

CONTROLLER_GEN := bin/controller-gen
CRD_REF_DOCS := bin/crd-ref-docs
GOLANGCI_LINT := bin/golangci-lint
GOVULNCHECK := bin/govulncheck

# What make generate writes.
GENERATED := api/v1alpha1/zz_generated.deepcopy.go config/crd/bases config/rbac/role.yaml \
	config/kustomize/component/schema.json config/kustomize/component/policies.json docs/api-reference.md \
	docs/performance.md docs/operations.md docs/images
# Packages whose tests need an API server.
INTEGRATION = $(sort $(dir $(shell grep -rl --include='*_test.go' '^//go:build integration' api config controllers hack internal)))
# Modules that are kept tidy. OpenKruise's keeps the go.mod and go.sum of its release.
MODULES := . e2e/virtualnode/ $(filter-out hack/tools/kruise-%,$(sort $(dir $(wildcard hack/tools/*/go.mod))))

include hack/localcluster/cluster.mk
include hack/packaging/packaging.mk

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile $(filter-out Makefile,$(MAKEFILE_LIST))

##@ Development

.PHONY: build
build: ## Build the operator: bin/manager.
	CGO_ENABLED=0 go build -trimpath -o bin/manager .

.PHONY: generate
generate: manifests bench-report $(CRD_REF_DOCS) ## Generate code, manifests, the API reference and the benchmark's results.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	$(CRD_REF_DOCS) --source-path=api --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --log-level=ERROR \
		--output-path=docs/api-reference.md
	@sed -i -e '$$a\' docs/api-reference.md

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs, the operator's roles and the schemas for kustomize.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=sidecar-termination-manager-role paths=. paths=./controllers/... paths=./internal/... \
		output:rbac:artifacts:config=config/rbac
	go run ./hack/kustomize-schema

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code.
	$(GOLANGCI_LINT) fmt

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Lint the code, the import rules included.
	$(GOLANGCI_LINT) run
	cd e2e/virtualnode && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml

.PHONY: verify
verify: verify-generated verify-modules $(GOLANGCI_LINT) ## Check that generated files are current and that lint, vet and modules are clean.
	$(GOLANGCI_LINT) config verify
	$(GOLANGCI_LINT) run
	cd e2e/virtualnode && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml
	go vet -tags e2e,integration ./...

.PHONY: verify-generated
verify-generated:
	@# Compares with what is there, committed or not, new files included.
	@before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; \
	cp -a --parents $(GENERATED) "$$before"; \
	$(MAKE) --no-print-directory generate; \
	for path in $(GENERATED); do \
		git --no-pager diff --no-index --exit-code "$$before/$$path" "$$path" || \
			{ echo "$$path was not current: commit what make generate has written" >&2; exit 1; }; \
	done

.PHONY: verify-modules
verify-modules:
	@for module in $(MODULES); do echo "go mod tidy -diff in $$module"; (cd "$$module" && go mod tidy -diff); done

# Where the database of vulnerabilities is: a URL, that of a copy (file:///path) included.
VULN_DB ?= https://vuln.go.dev

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## Look for known vulnerabilities in what the code uses (VULN_DB=URL, file:///path for a copy).
	@# govulncheck ends with 3 when it has found something.
	@$(GOVULNCHECK) -db $(VULN_DB) ./... || { \
		code=$$?; \
		[[ $$code == 3 ]] || echo "Nothing was checked: govulncheck has to read the database $(VULN_DB). Where it cannot be" \
			"reached, name a copy of it: make vulncheck VULN_DB=file:///path (https://go.dev/doc/security/vuln/database)." >&2; \
		exit $$code; \
	}

##@ Tests

# The longest time that the tests of a package may take. Go's ten minutes are too short on a busy machine without a cache of
# builds, where tests compile programs for every platform.
TIMEOUT := 60m

.PHONY: test
test: test-unit test-fuzz test-integration test-e2e ## Run every test.

.PHONY: test-long
test-long: test-faults test-mutations soak test-e2e-faults test-e2e-matrix ## Run what takes too long for every change: every fault, many mutations, the soak, every Job policy (1.5 hours).

.PHONY: test-unit
test-unit: ## Run the unit tests with the race detector.
	go test -race -timeout $(TIMEOUT) ./...
	go -C e2e/virtualnode test -race -timeout $(TIMEOUT) ./...
	go -C hack/tools/chart test -race -timeout $(TIMEOUT) ./...

# How many tests of a package that lend themselves to it run at once. They wait for the API server most of the time.
PARALLEL := 4

.PHONY: test-integration
test-integration: $(LOCALCLUSTER) ## Run the tests against a real API server, with the race detector (built once: 5 minutes).
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	KUBEBUILDER_ASSETS="$$assets" go test -race -tags integration -count=1 -parallel $(PARALLEL) -timeout $(TIMEOUT) $(addprefix ./,$(INTEGRATION))

# How often test-repeat runs each test, and which ones.
COUNT ?= 50
RUN ?= .

.PHONY: test-repeat
test-repeat: $(LOCALCLUSTER) ## Run every test but those on a cluster COUNT (50) times in random order (RUN=TestX for a part; hours).
	@assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); failed=0; \
	go test -race -count=$(COUNT) -shuffle=on -p 1 -timeout 12h -run '$(RUN)' ./... || failed=1; \
	go -C e2e/virtualnode test -race -count=$(COUNT) -shuffle=on -timeout 12h -run '$(RUN)' ./... || failed=1; \
	go -C hack/tools/chart test -race -count=$(COUNT) -shuffle=on -timeout 12h -run '$(RUN)' ./... || failed=1; \
	KUBEBUILDER_ASSETS="$$assets" hack/repeat-tests.sh $(COUNT) $(PARALLEL) '$(RUN)' $(addprefix ./,$(INTEGRATION)) || failed=1; \
	exit $$failed

.PHONY: test-faults
test-faults: $(LOCALCLUSTER) ## Try every fault at every write and read of every scenario against a real API server (minutes).
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	FAULTS=all KUBEBUILDER_ASSETS="$$assets" go test -race -tags integration -count=1 -parallel $(PARALLEL) -timeout 120m -v \
		-run 'TestACrash|TestAnyAnswer|TestAThird|TestReadsMay|TestAnyChange|TestTheOperatorsClock|TestTheFaults|TestAnyEvent|TestPullJobsHave' \
		./controllers/

# How many changes of policies are tried, when make test-mutations asks for them.
MUTATIONS ?= 5000

.PHONY: test-mutations
test-mutations: $(LOCALCLUSTER) ## Change policies at random MUTATIONS (5000) times against a real API server (SEED=n repeats a run).
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	MUTATIONS=$(MUTATIONS) KUBEBUILDER_ASSETS="$$assets" go test -race -tags integration -count=1 -timeout $(TIMEOUT) -v \
		-run 'TestAnyMutation' ./controllers/

# How long the operator runs under churn, when make soak asks for it.
SOAK ?= 10m

.PHONY: soak
soak: $(LOCALCLUSTER) ## Run the operator under churn for SOAK (10m) and check that goroutines, memory and watches stay flat.
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	SOAK=$(SOAK) KUBEBUILDER_ASSETS="$$assets" go test -race -tags integration -count=1 -timeout 0 -v -run TestSoak ./controllers/

# How long each fuzz target runs, or how many inputs it tries: 5000x. A search that is bounded by inputs ends at the same
# point on a busy machine.
FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (10s) each. What it finds is kept in testdata/fuzz: commit it with the fix.
	@grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' api controllers internal | sort | while IFS=: read -r file _ name; do \
		package="./$$(dirname "$$file")" target="$${name#func }"; \
		echo "==> $$target of $$package"; \
		go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1000x "$$package" || { \
			echo "$$target has failed. If the output names an input that it failed with, the input is now in" \
				"$$package/testdata/fuzz/$$target: repeat it by" \
				"\`go test -run='^$$target\$$' $$package\`, and commit it along with the fix." >&2; \
			exit 1; \
		}; \
	done

.PHONY: test-fuzz
test-fuzz: ## Try 5000 inputs on every fuzz target.
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5000x

# REQUIRE_E2E=1 makes it an error that this machine cannot run a kubelet.
.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests on a real local cluster (Linux, root; else skipped unless REQUIRE_E2E=1).
	@if reason=$$(hack/can-run-kubelet.sh); then \
		$(MAKE) --no-print-directory cluster-up deploy run-e2e; \
	elif [[ "$${REQUIRE_E2E:-}" == 1 ]]; then \
		echo "End-to-end tests are required and cannot run: $$reason" >&2; exit 1; \
	else \
		echo "End-to-end tests skipped: $$reason"; \
	fi

.PHONY: run-e2e
run-e2e: ## Run the end-to-end tests on the local cluster as it is (E2E_ARGS='-run TestX').
	go test -tags e2e -count=1 -timeout $(TIMEOUT) -v ./e2e/... $(E2E_ARGS)

.PHONY: test-e2e-faults
test-e2e-faults: cluster-up deploy ## Kill every component of the local cluster under Jobs, delete pods as they end (Linux, root; half an hour and more).
	FAULTS=all go test -tags e2e -count=1 -timeout 120m -v -run '^Test(Faults|Teardown)' ./e2e

.PHONY: test-e2e-matrix
test-e2e-matrix: cluster-up deploy ## Run every row of the outcome matrix that has a policy of a Job (Linux, root; 10 minutes).
	MATRIX=all go test -tags e2e -count=1 -timeout $(TIMEOUT) -v -run '^TestOutcomeMatrixOfJobPolicies' ./e2e

.PHONY: demo
demo: cluster-up deploy ## Show the operator at work on a real local cluster (Linux, root).
	go run ./hack/demo

##@ Performance

# benchstat compares two files of results, and wants several runs of each benchmark.
MICROBENCH_COUNT ?= 6

.PHONY: microbench
microbench: ## Measure decisions, cache transform and rollup; compare results with bin/benchstat (MICROBENCH_COUNT=6).
	@go test -run '^$$' -bench . -benchmem -count $(MICROBENCH_COUNT) ./controllers ./internal/resolve ./internal/plan ./internal/rollup

.PHONY: bench
bench: ## Measure the operator, OpenKruise and bare clients on an API server (BENCH_ARGS='--runs 1 --pods 100'; docs/performance.md).
	go build -o bin/bench ./hack/bench
	bin/bench $(BENCH_ARGS)

.PHONY: bench-report
bench-report: bin/chart ## Write the kept results (docs/performance) into the documents, and draw the charts.
	@rm -f docs/images/performance-*.svg
	go run ./hack/bench report | bin/chart --directory docs/images

.PHONY: bench-short
bench-short: $(LOCALCLUSTER) ## Check that each mode costs one write per pod, by the benchmark with few pods.
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	KUBEBUILDER_ASSETS="$$assets" go test -tags integration -count=1 -v -run TestEachModeCosts ./hack/bench

##@ Cleaning

.PHONY: clean
clean: ## Remove what was built. The cache of built cluster components stays.
	rm -rf bin dist

.PHONY: clean-cache
clean-cache: ## Remove the cache of built cluster components, which take minutes to build again.
	rm -rf "$${SIDECAR_TERMINATION_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/sidecar-termination-operator}/bin"

# Tools, each built from a module that pins it.

bin/benchstat: hack/tools/benchstat/go.mod hack/tools/benchstat/go.sum
	go -C hack/tools/benchstat build -o $(CURDIR)/$@ golang.org/x/perf/cmd/benchstat

CHART_SOURCES := $(filter-out %_test.go,$(wildcard hack/tools/chart/*.go))

bin/chart: hack/tools/chart/go.mod hack/tools/chart/go.sum $(CHART_SOURCES)
	go -C hack/tools/chart build -o $(CURDIR)/$@ .

$(CONTROLLER_GEN): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(CRD_REF_DOCS): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ github.com/elastic/crd-ref-docs

$(GOVULNCHECK): hack/tools/vuln/go.mod hack/tools/vuln/go.sum
	go -C hack/tools/vuln build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

$(GOLANGCI_LINT): hack/tools/lint/go.mod hack/tools/lint/go.sum
	go -C hack/tools/lint build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

##@ Local cluster
