# The targets that people type have a help line: make help.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Tests and the cluster that they run on follow each other.
.NOTPARALLEL:

# The version of Kubernetes that tests run against.
K8S_VERSION ?= 1.37.2
export K8S_VERSION

# The toolchain is the one that is installed, and a build does not depend on the state of the repository. All programs are built as
# Kubernetes is, so that a package which they share is compiled once.
export GOTOOLCHAIN := local
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -buildvcs=% -trimpath,$(GOFLAGS)) -buildvcs=false -trimpath)

ACTIONLINT := bin/actionlint
CONTROLLER_GEN := bin/controller-gen
CRD_REF_DOCS := bin/crd-ref-docs
GOLANGCI_LINT := bin/golangci-lint
GOVULNCHECK := bin/govulncheck
GREMLINS := bin/gremlins
HELM := bin/helm

# What make generate writes.
GENERATED := api/v1alpha1/zz_generated.deepcopy.go config/crd/bases config/rbac/role.yaml \
	docs/api-reference.md
# Modules with code of their own and more dependencies than the operator. They are linted like the main module.
NESTED := e2e/virtualnode hack/docs
# Modules that are kept tidy. OpenKruise's keeps the go.mod and go.sum of its release.
MODULES := . $(NESTED) $(filter-out hack/tools/kruise-%,$(sort $(dir $(wildcard hack/tools/*/go.mod))))

include hack/localcluster/cluster.mk
include hack/packaging/packaging.mk
include hack/site/site.mk

##@ Development

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {print substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile $(filter-out Makefile,$(MAKEFILE_LIST))

# Both programs name the commit that they are built from.
.PHONY: build
build: ## Build the operator (bin/manager) and the kubectl plugin.
	go build -buildvcs=auto -ldflags '-s -w' -o bin/manager .
	go build -buildvcs=auto -ldflags '-s -w' -o bin/ ./cmd/kubectl-sidecar_termination

.PHONY: clean
clean: ## Remove what was built, but not the cache of cluster components.
	rm -rf bin dist

.PHONY: clean-cache
clean-cache:
	rm -rf "$${SIDECAR_TERMINATION_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/sidecar-termination-operator}/bin"

.PHONY: generate
generate: manifests $(CRD_REF_DOCS) ## Generate code, manifests and the API reference.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	$(CRD_REF_DOCS) --source-path=api --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --log-level=ERROR \
		--output-path=docs/api-reference.md
	@sed -i -e '$$a\' docs/api-reference.md

.PHONY: manifests
manifests: $(CONTROLLER_GEN)
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=sidecar-termination-manager-role paths=. paths=./controllers/... paths=./internal/... \
		output:rbac:artifacts:config=config/rbac

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code.
	$(GOLANGCI_LINT) fmt

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Lint the code, the import rules included.
	$(GOLANGCI_LINT) run
	for module in $(NESTED); do (cd $$module && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml); done

.PHONY: verify
verify: verify-generated verify-modules verify-workflows lint ## Check generated files, modules, workflows, the chart and the alerts; lint.
	$(GOLANGCI_LINT) config verify

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

.PHONY: verify-workflows
verify-workflows: $(ACTIONLINT)
	$(ACTIONLINT) .github/workflows/*.yaml

# The URL of the vulnerability database, or of a copy (file:///path).
VULN_DB ?= https://vuln.go.dev

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK)
	@# govulncheck ends with 3 when it has found something.
	@$(GOVULNCHECK) -db $(VULN_DB) ./... || { \
		code=$$?; \
		[[ $$code == 3 ]] || echo "Nothing was checked: govulncheck has to read the database $(VULN_DB). Where it cannot be" \
			"reached, name a copy of it: make vulncheck VULN_DB=file:///path (https://go.dev/doc/security/vuln/database)." >&2; \
		exit $$code; \
	}

##@ Tests

# The timeout of a package's tests. Go's default of ten minutes is too short on a busy machine without a build cache.
TIMEOUT := 60m

.PHONY: test
test: test-integration test-e2e ## Run the tests that every change must pass.

.PHONY: test-long
test-long: export LONG := 1
test-long: export REQUIRE_E2E := 1
test-long: TIMEOUT := 4h
test-long: fuzz test-site simulate soak test e2e-tools test-release ## Run every test at full length: fuzzing, faults, matrices, simulation, soak, tools, a release (hours).

# How many parallel tests of a package run at once. They wait for the API server most of the time.
PARALLEL := 4
# The linter includes go vet.
GO_TEST = go test -count=1 -vet=off -timeout $(TIMEOUT)
INTEGRATION_TEST = $(GO_TEST) -tags integration -parallel $(PARALLEL)

# The race detector runs where code is concurrent. The operator runs all of it in the tests of controllers. Tests of pure code that would take
# minutes with it have the build constraint !race: their packages also run without it.
DIRECTORIES = xargs -n 1 dirname | sort -u | sed 's|^|./|'
RACY = ./controllers $$(grep -rlE --include=*.go '"sync|go func' internal | $(DIRECTORIES))
NOT_RACY = $$(go list ./... | grep -vxF "$$racy") $$(grep -rl --include=*.go '^//go:build !race' internal | $(DIRECTORIES))

.PHONY: test-integration
test-integration: $(LOCALCLUSTER) ## Run the unit tests and those against a real API server (LONG=1 tries every fault).
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	export KUBEBUILDER_ASSETS="$$assets"; \
	racy=$$(go list $(RACY)); \
	{ \
		$(INTEGRATION_TEST) $(NOT_RACY); \
		(cd hack/docs && $(INTEGRATION_TEST) ./...); \
	} & others=$$!; \
	CGO_ENABLED=1 $(INTEGRATION_TEST) -race $$racy || code=$$?; \
	wait $$others && exit $${code:-0}

# How many schedules make simulate runs.
SCHEDULES ?= 10000000

.PHONY: simulate
simulate: ## Simulate SCHEDULES (10000000) interleavings of the operator, a kubelet and OpenKruise.
	SCHEDULES=$(SCHEDULES) go test -count=1 -timeout 24h -v -run '^TestSimulation$$' ./internal/plan

# How long the operator runs under churn, when make soak asks for it.
SOAK ?= 10m

.PHONY: soak
soak: $(LOCALCLUSTER) ## Run the operator under churn for SOAK (10m): goroutines, memory and watches stay flat.
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	SOAK=$(SOAK) KUBEBUILDER_ASSETS="$$assets" CGO_ENABLED=1 go test -race -tags integration -count=1 -timeout 0 -v -run TestSoak ./controllers/

# How long each fuzz target runs, or how many inputs it tries: 5000x. A search that is bounded by inputs ends at the same
# point on a busy machine.
FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (10s), and keep what it finds in testdata/fuzz.
	@grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' api cli controllers internal | sort | while IFS=: read -r file _ name; do \
		package="./$$(dirname "$$file")" target="$${name#func }"; \
		echo "==> $$target of $$package"; \
		go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=1000x "$$package" || { \
			echo "$$target has failed. If the output names an input that it failed with, the input is now in" \
				"$$package/testdata/fuzz/$$target: repeat it by" \
				"\`go test -run='^$$target\$$' $$package\`, and commit it along with the fix." >&2; \
			exit 1; \
		}; \
	done

# REQUIRE_E2E=1 fails if this machine cannot run a kubelet.
.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests on a local cluster (Linux, root; REQUIRE_E2E=1 never skips).
	@if reason=$$(hack/can-run-kubelet.sh); then \
		$(MAKE) --no-print-directory cluster-up cluster-deploy run-e2e; \
	elif [[ "$${REQUIRE_E2E:-}" == 1 ]]; then \
		echo "End-to-end tests are required and cannot run: $$reason" >&2; exit 1; \
	else \
		echo "End-to-end tests skipped: $$reason"; \
	fi

.PHONY: run-e2e
run-e2e: ## Run the end-to-end tests on the running local cluster (E2E_ARGS='-run TestX').
	$(GO_TEST) -tags e2e -skip '^TestTools' -v ./e2e $(E2E_ARGS)

.PHONY: e2e-tools
e2e-tools: ## Run the end-to-end tests with tools that make pods, on a new cluster that has them.
	$(MAKE) --no-print-directory cluster-down
	REQUIRE_E2E=1 $(MAKE) --no-print-directory WITH=all cluster-up cluster-deploy run-e2e-tools
	$(MAKE) --no-print-directory cluster-down

.PHONY: run-e2e-tools
run-e2e-tools:
	$(GO_TEST) -tags e2e -v ./e2e -run '^TestTools' $(E2E_ARGS)

# The directories of a release and of the one before it, which test-release builds unless it gets them.
RELEASE ?=
PREVIOUS_RELEASE ?=

.PHONY: test-release
test-release: $(HELM) $(LOCALCLUSTER) ## Build a release, and install, upgrade, roll back and remove it in every way (20 minutes).
	@version=$$(sed -n 's/^appVersion: //p' config/chart/Chart.yaml) release='$(RELEASE)' previous='$(PREVIOUS_RELEASE)'; \
	[[ -n "$$release" ]] || { VERSION="$$version" $(MAKE) --no-print-directory release-dry-run; release="$(DIST)/$$version"; }; \
	[[ -n "$$previous" ]] || { previous="$(DIST)/v0.0.9"; hack/previous-release.sh "$$version" v0.0.9 "$$previous"; }; \
	$(MAKE) --no-print-directory cluster-down cluster-up; \
	RELEASE="$$(realpath "$$release")" PREVIOUS_RELEASE="$$(realpath "$$previous")" \
		$(GO_TEST) -tags e2e,release -v ./e2e/release
	$(MAKE) --no-print-directory cluster-down

.PHONY: test-versions
test-versions: ## Test every supported combination of versions (15 minutes each; VERSIONS='1.36' selects).
	hack/test-versions.sh $(VERSIONS)

# The demonstration shows Kubernetes and the operator alone.
.PHONY: demo
demo: WITH := none
demo: cluster-up cluster-deploy ## Show the operator at work on a real local cluster (Linux, root; 10 minutes to build it).
	hack/demo.sh

# The packages that decide, those that write to pods, and the one that tells whether CRRs are available.
MUTANTS := internal/resolve internal/plan internal/rollup internal/terminator internal/optionalkind

.PHONY: mutants
mutants: $(GREMLINS) ## Change the code that decides or writes, and list the changes that no test notices (an hour).
	hack/mutants.sh $(MUTANTS)

.PHONY: bench
bench: build ## Measure the operator, OpenKruise and bare clients (BENCH_ARGS='--runs 1 --pods 100').
	go build -o bin/bench ./hack/bench
	bin/bench $(BENCH_ARGS)

# Tools, each built from a module that pins it.

$(ACTIONLINT): hack/tools/checks/go.mod hack/tools/checks/go.sum
	go -C hack/tools/checks build -o $(CURDIR)/$@ github.com/rhysd/actionlint/cmd/actionlint

$(CONTROLLER_GEN): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(CRD_REF_DOCS): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ github.com/elastic/crd-ref-docs

$(GOVULNCHECK): hack/tools/checks/go.mod hack/tools/checks/go.sum
	go -C hack/tools/checks build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

$(GREMLINS): hack/tools/checks/go.mod hack/tools/checks/go.sum
	go -C hack/tools/checks build -o $(CURDIR)/$@ github.com/go-gremlins/gremlins/cmd/gremlins

$(HELM): hack/tools/helm/go.mod hack/tools/helm/go.sum
	go -C hack/tools/helm build -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm

$(GOLANGCI_LINT): hack/tools/lint/go.mod hack/tools/lint/go.sum
	go -C hack/tools/lint build -o $(CURDIR)/$@ sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter
