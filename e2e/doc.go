// SPDX-License-Identifier: Apache-2.0

// Package e2e holds black-box tests that run against a real cluster with the operator deployed in it. They read and
// write API objects only.
//
// The tests carry the build tag e2e. `make test-e2e` brings up the local cluster, deploys the operator and runs them:
//
//	go test -tags e2e -timeout 40m ./e2e/...
//
// KUBECONFIG names the cluster, by default the local one. Tests run in parallel, each in a namespace of its own. Those
// that disturb the whole cluster, such as by stopping a component, run one after the other when all others are done.
// FAULTS=all adds faults of every component of the cluster, and every way of TestTeardown…, which take half an hour and more
// (`make test-e2e-faults`).
// E2E_KEEP_NAMESPACES=1 leaves the namespaces of failed tests in place.
package e2e
