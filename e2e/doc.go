// SPDX-License-Identifier: Apache-2.0

// Package e2e contains black-box tests of the deployed operator on a real cluster. They read and write API objects only.
//
// The tests have build tag e2e. `make test-e2e` brings up the local cluster, deploys the operator and runs them:
//
//	go test -tags e2e -timeout 40m ./e2e/...
//
// KUBECONFIG selects the cluster, by default the local one. Tests run in parallel, each in its own namespace. Tests that affect
// the whole cluster, for example by stopping a component, run one by one after all others.
// LONG=1 adds faults of every component, every combination of kustomize components and every row of the outcome matrices, which take hours.
// E2E_KEEP_NAMESPACES=1 keeps the namespaces of failed tests.
package e2e
