##@ Local cluster

# A real Kubernetes cluster on this machine. CONTRIBUTING.md lists these variables.
export KUBELET_VERSION KRUISE_VERSION WITH

LOCALCLUSTER := bin/localcluster

.PHONY: cluster-up
cluster-up: $(LOCALCLUSTER) ## Bring up a real Kubernetes cluster on this machine (K8S_VERSION=1.36.4; see CONTRIBUTING.md).
	$(LOCALCLUSTER) up

.PHONY: cluster-down
cluster-down: $(LOCALCLUSTER) ## Remove the local cluster and restore the machine.
	$(LOCALCLUSTER) down

.PHONY: cluster-status
cluster-status: $(LOCALCLUSTER)
	$(LOCALCLUSTER) status

.PHONY: cluster-deploy
cluster-deploy: $(LOCALCLUSTER) ## Build the operator and deploy it to the local cluster.
	$(LOCALCLUSTER) deploy

# The go command knows whether it is up to date. The first build compiles a thousand packages, which takes minutes.
.PHONY: $(LOCALCLUSTER)
$(LOCALCLUSTER):
	@echo "build $@"
	@go build -v -o $@ ./hack/localcluster 2>&1 | \
		awk 'NF > 1 {print >"/dev/stderr"; next} ++compiled % 100 == 0 {print "compiled " compiled " packages"; fflush()}'
