# What people install: images, manifests, the Helm chart and the command line, and what describes them. All of it is reproducible.

##@ Packages

# The directory of what is built.
DIST ?= dist

.PHONY: images
images: ## Build the operator's and the quick-exit image for amd64 and arm64 as OCI layouts: dist/images.
	go run ./hack/packaging images --output='$(DIST)'

.PHONY: dist
dist: ## Write the files of a release: manifests, kustomize component, Helm chart, command line, checksums.
	go run ./hack/packaging dist

.PHONY: release-notes
release-notes: ## Print the notes of a release (TAG=v0.1.0), which must be the version of the sources, from CHANGELOG.md.
	@# Make does not expand a TAG of the environment, and the shell does not either.
	@go run ./hack/packaging notes "$$TAG"

CYCLONEDX_GOMOD := bin/cyclonedx-gomod
# BUILDER is the address of who builds the release. The default says that somebody builds on their own machine.
BUILDER ?=

.PHONY: attest
attest: $(CYCLONEDX_GOMOD) ## Add SBOMs and provenance to what make dist images has built, and update its checksums (BUILDER=URL).
	go run ./hack/packaging attest --generator=$(CYCLONEDX_GOMOD) $(if $(BUILDER),--builder='$(BUILDER)')

# The public key of the signatures of a release, and whether to build it again.
KEY ?= $(wildcard cosign.pub)
REBUILD ?= 1

.PHONY: verify-release
verify-release: $(CYCLONEDX_GOMOD) ## Check checksums, signatures, images, provenance and SBOMs of a release, and rebuild it (DIST=dist KEY=cosign.pub REBUILD=0).
	@go run ./hack/packaging verify --output='$(DIST)' --key='$(KEY)' --rebuild=$(REBUILD) --generator=$(CYCLONEDX_GOMOD)

# The release workflow runs this target, and publishes what it leaves in dist/VERSION.
.PHONY: release-dry-run
release-dry-run: $(CYCLONEDX_GOMOD) ## Build and check what a release publishes (VERSION=v0.1.0, the version of the sources; BUILDER=URL): dist/v0.1.0.
	@# Make does not expand a VERSION of the environment, and the shell does not either.
	@go run ./hack/packaging release "$$VERSION" --output='$(DIST)' --generator=$(CYCLONEDX_GOMOD) $(if $(BUILDER),--builder='$(BUILDER)')

$(CYCLONEDX_GOMOD): hack/tools/sbom/go.mod hack/tools/sbom/go.sum
	go -C hack/tools/sbom build -o $(CURDIR)/$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

test-packaging: $(CYCLONEDX_GOMOD)

.PHONY: chart
chart: ## Package the Helm chart (config/chart) as a directory: dist/chart.
	go run ./hack/packaging chart

helm-docs = $(HELM_DOCS) --chart-search-root=config/chart --template-files=$(CURDIR)/hack/packaging/chart/README.md.gotmpl \
	--sort-values-order=file --log-level=warning

.PHONY: chart-readme
chart-readme: $(HELM_DOCS) ## Write the README of the Helm chart from the comments of its values.
	$(helm-docs)

.PHONY: verify-chart
verify-chart: $(HELM_DOCS) ## Lint the Helm chart, compare its objects with config/default and its components, and check that its README is current.
	go -C hack/tools/helm test -count=1 -timeout $(TIMEOUT) ./...
	@$(helm-docs) --dry-run | diff config/chart/README.md - || \
		{ echo "config/chart/README.md is not current: run make chart-readme" >&2; exit 1; }

.PHONY: verify-monitoring
verify-monitoring: ## Check the alerts and the dashboard with Prometheus's own code, and test each alert.
	go -C hack/tools/monitoring test -count=1 -timeout $(TIMEOUT) ./...

verify: verify-chart verify-monitoring

##@ Install this checkout

KUBECTL ?= kubectl
# The name of the operator's image, with a tag. The quick-exit image is quick-exit next to it, with its tag, unless it has a name.
IMG ?=
QUICK_EXIT_IMG ?=
own-images = --output='$(DIST)' --image='$(IMG)' --quick-exit-image='$(QUICK_EXIT_IMG)'

.PHONY: docker-build
docker-build: images ## Build the images (make images). It needs no container engine.

.PHONY: docker-push
docker-push: ## Push the images that were built (IMG=registry.example/team/sidecar-termination-operator:dev).
	@go run ./hack/packaging push $(own-images)

.PHONY: deploy
deploy: ## Install the operator with these images on the cluster of kubectl's context (IMG=…).
	overlay=$$(go run ./hack/packaging overlay $(own-images)); \
	$(KUBECTL) apply --server-side --force-conflicts -k "$$overlay"
	$(KUBECTL) --namespace=sidecar-termination-system rollout status deployment/sidecar-termination-controller-manager --timeout=2m

.PHONY: undeploy
undeploy: uninstall ## Remove every policy, and then the operator, from the cluster of kubectl's context.
	$(KUBECTL) delete --ignore-not-found -k config/default

.PHONY: install
install: ## Install the admission policies and the definitions, without the operator.
	$(KUBECTL) apply --server-side --force-conflicts -k config/admission
	$(KUBECTL) apply --server-side --force-conflicts -k config/crd

.PHONY: uninstall
uninstall: ## Remove the definitions, and every policy with them. The admission policies stay.
	$(KUBECTL) delete --ignore-not-found -k config/crd

# The name of the kind cluster or of the minikube profile.
KIND_CLUSTER ?= kind
MINIKUBE_PROFILE ?= minikube

.PHONY: kind-load
kind-load: ## Load the images that were built into the nodes of a kind cluster (IMG=… KIND_CLUSTER=kind).
	go run ./hack/packaging save $(own-images) | xargs -I{} kind load image-archive {} --name '$(KIND_CLUSTER)'

.PHONY: minikube-load
minikube-load: ## Load the images that were built into minikube (IMG=… MINIKUBE_PROFILE=minikube).
	go run ./hack/packaging save $(own-images) | xargs -I{} minikube image load {} --profile '$(MINIKUBE_PROFILE)'
