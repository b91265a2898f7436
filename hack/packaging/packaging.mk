# What people install: images, manifests, the Helm chart and the kubectl plugin. All of it is reproducible.

##@ Packages and documentation

# The directory of what is built.
DIST ?= dist

.PHONY: dist
dist:
	go run ./hack/packaging manifests --output='$(DIST)'

CYCLONEDX_GOMOD := bin/cyclonedx-gomod

# The release workflow runs this target, and publishes what it leaves in dist/VERSION.
.PHONY: release-dry-run
release-dry-run: $(CYCLONEDX_GOMOD) ## Build what a release publishes: dist/v0.1.0 (VERSION=v0.1.0, the version of the sources).
	@# Make does not expand a VERSION of the environment, and the shell does not either.
	@hack/release.sh "$$VERSION" '$(DIST)'

$(CYCLONEDX_GOMOD): hack/tools/checks/go.mod hack/tools/checks/go.sum
	go -C hack/tools/checks build -o $(CURDIR)/$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

.PHONY: verify-chart
verify-chart:
	go -C hack/tools/helm test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: verify-monitoring
verify-monitoring:
	go -C hack/tools/monitoring test -count=1 -timeout $(TIMEOUT) ./...

verify: verify-chart verify-monitoring

KUBECTL ?= kubectl
# The name of the operator's image, with a tag. The quick-exit image is quick-exit next to it, with its tag, unless it has a name.
IMG ?=
QUICK_EXIT_IMG ?=
# The kustomization of the operator: config/overlays/before-1.36 for older Kubernetes.
INSTALLATION ?= config/default
own-images = --output='$(DIST)' --image='$(IMG)' --quick-exit-image='$(QUICK_EXIT_IMG)'

.PHONY: docker-build
docker-build: ## Build the images for amd64 and arm64 without a container engine: dist/images.
	go run ./hack/packaging images --output='$(DIST)'

.PHONY: docker-push
docker-push: ## Push the images (IMG=registry.example/team/sidecar-termination-operator:dev).
	@go run ./hack/packaging push $(own-images)

.PHONY: deploy
deploy: ## Install the operator with these images on the cluster of kubectl's context (IMG=…).
	overlay=$$(go run ./hack/packaging overlay $(own-images) --installation='$(INSTALLATION)'); \
	$(KUBECTL) apply --server-side --force-conflicts -k "$$overlay"
	$(KUBECTL) --namespace=sidecar-termination-system rollout status deployment/sidecar-termination-controller-manager --timeout=2m

.PHONY: undeploy
undeploy: ## Remove every policy with the definitions, and then the operator.
	$(KUBECTL) delete --ignore-not-found -k config/crd
	$(KUBECTL) delete --ignore-not-found -k '$(INSTALLATION)'

# The name of the kind cluster.
KIND_CLUSTER ?= kind

.PHONY: kind-load
kind-load:
	go run ./hack/packaging save $(own-images) | xargs -I{} kind load image-archive {} --name '$(KIND_CLUSTER)'
