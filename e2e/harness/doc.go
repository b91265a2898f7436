// SPDX-License-Identifier: Apache-2.0

// Package harness is what the end-to-end tests stand on: the connection to the cluster, a namespace for each test,
// builders of the objects under test, a recorder that sees every state of a pod, waits with a deadline, and a dump of
// everything relevant when a test fails.
//
// It treats the operator as a black box and imports nothing of it but the API.
package harness
