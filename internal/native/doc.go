// SPDX-License-Identifier: Apache-2.0

// Package native decides which declared sidecars of a new pod become native sidecars: init containers with restartPolicy
// Always, which Kubernetes ends itself once the main containers are done (KEP-753).
//
// The admission policies of config/components/native make the same decision in the API server, when a pod is created. A
// test holds both to the same result. The operator and the command line use this package to say what was or would be
// converted, and why not.
//
// The package is pure: it imports no client, logger or clock, and the same input gives the same output. It must not hold
// what happens to sidecars that were not converted; package plan decides that.
package native
