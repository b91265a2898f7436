// SPDX-License-Identifier: Apache-2.0

// Package resolve decides which policy or environment variable applies to each container of a pod, and which policies are
// overridden.
//
// A regular container is a sidecar if an enforced policy that selects the pod names it, or if one of OpenKruise's
// environment variables on it says so. Every other regular container is a main container. Among policies that name the
// same container, a namespaced policy takes precedence over a cluster policy, then the higher priority, then the older
// policy, then the first name. Each setting of a sidecar comes from the first place that has it: the entry
// of the policy that applies to the container, that policy's spec, the container's environment variables, the operator's default.
//
// The package is pure: it imports no client, logger or clock, and the same input gives the same output, in the same
// order. Package plan decides what to do with the result.
package resolve
