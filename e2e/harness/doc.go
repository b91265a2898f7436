// SPDX-License-Identifier: Apache-2.0

// Package harness supports the end-to-end tests. It provides the connection to the cluster, a namespace for each test, builders
// of objects, a recorder of every state of a pod, waits with a timeout, and a dump of a failed test's namespace.
//
// It treats the operator as a black box and imports only its API.
package harness
