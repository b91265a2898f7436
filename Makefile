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

# What make generate writes.
GENERATED := api/v1alpha1/zz_generated.deepcopy.go config/crd/bases config/rbac/role.yaml \
	config/kustomize/component/schema.json config/kustomize/component/policies.json docs/api-reference.md
# Packages whose tests need an API server.
INTEGRATION = $(sort $(dir $(shell grep -rl --include='*_test.go' '^//go:build integration' api config controllers internal)))
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
generate: manifests $(CRD_REF_DOCS) ## Generate code, manifests and the API reference.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	$(CRD_REF_DOCS) --source-path=api --config=hack/api-reference/config.yaml \
		--templates-dir=hack/api-reference/templates --renderer=markdown --log-level=ERROR \
		--output-path=docs/api-reference.md
	@sed -i -e '$$a\' docs/api-reference.md

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate the CRDs, the operator's roles and the schemas for kustomize.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=sidecar-termination-manager-role paths=./controllers/... paths=./internal/... \
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

##@ Tests

.PHONY: test
test: test-unit test-integration test-e2e ## Run every test.

.PHONY: test-unit
test-unit: ## Run the unit tests with the race detector.
	go test -race ./...
	go -C e2e/virtualnode test -race ./...

.PHONY: test-integration
test-integration: $(LOCALCLUSTER) ## Run the tests against a real API server (built once: 5 minutes).
	assets=$$($(LOCALCLUSTER) build --envtest | tail -n 1); \
	KUBEBUILDER_ASSETS="$$assets" go test -tags integration -count=1 -timeout 20m $(addprefix ./,$(INTEGRATION))

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
	go test -tags e2e -count=1 -timeout 60m -v ./e2e/... $(E2E_ARGS)

.PHONY: demo
demo: cluster-up deploy ## Show the operator at work on a real local cluster (Linux, root).
	go run ./hack/demo

##@ Cleaning

.PHONY: clean
clean: ## Remove what was built. The cache of built cluster components stays.
	rm -rf bin dist

.PHONY: clean-cache
clean-cache: ## Remove the cache of built cluster components, which take minutes to build again.
	rm -rf "$${SIDECAR_TERMINATION_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/sidecar-termination-operator}/bin"

# Tools, each built from a module that pins it.

$(CONTROLLER_GEN): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(CRD_REF_DOCS): hack/tools/generate/go.mod hack/tools/generate/go.sum
	go -C hack/tools/generate build -o $(CURDIR)/$@ github.com/elastic/crd-ref-docs

$(GOLANGCI_LINT): hack/tools/lint/go.mod hack/tools/lint/go.sum
	go -C hack/tools/lint build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

##@ Local cluster
