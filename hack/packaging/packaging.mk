# What people install: images, manifests, the Helm chart and the kubectl plugin. All of it is reproducible.

##@ Packages

# The directory of what is built.
DIST ?= dist

.PHONY: dist
dist: ## Write the manifests, the kustomize component and the Helm chart: dist.
	go run ./hack/packaging manifests --output='$(DIST)'

CYCLONEDX_GOMOD := bin/cyclonedx-gomod

# The release workflow runs this target, and publishes what it leaves in dist/VERSION.
.PHONY: release-dry-run
release-dry-run: $(CYCLONEDX_GOMOD) ## Build what a release publishes (VERSION=v0.1.0, the version of the sources): dist/v0.1.0.
	@# Make does not expand a VERSION of the environment, and the shell does not either.
	@hack/release.sh "$$VERSION" '$(DIST)'

$(CYCLONEDX_GOMOD): hack/tools/sbom/go.mod hack/tools/sbom/go.sum
	go -C hack/tools/sbom build -o $(CURDIR)/$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

.PHONY: verify-chart
verify-chart: ## Lint the Helm chart, and compare its objects with config/default and its components.
	go -C hack/tools/helm test -count=1 -timeout $(TIMEOUT) ./...

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
docker-build: ## Build the operator's and the quick-exit image for amd64 and arm64 without a container engine: dist/images.
	go run ./hack/packaging images --output='$(DIST)'

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

# The name of the kind cluster.
KIND_CLUSTER ?= kind

.PHONY: kind-load
kind-load: ## Load the images that were built into the nodes of a kind cluster (IMG=… KIND_CLUSTER=kind).
	go run ./hack/packaging save $(own-images) | xargs -I{} kind load image-archive {} --name '$(KIND_CLUSTER)'
