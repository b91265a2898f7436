// SPDX-License-Identifier: Apache-2.0

// Package resolve decides which policy or environment variable governs each container of a pod, and which lose.
//
// A regular container is a sidecar if any enforced policy that selects the pod names it, or if one of OpenKruise's
// environment variables on it says so; every other regular container is a main container. Among the policies that name
// one container a namespaced policy beats a cluster one, then the higher priority wins, then the older, then the name.
// Each setting of a sidecar comes from the first place that has it: the winning policy's entry for the container, that
// policy's spec, the container's environment variables, the operator's default.
//
// The package is pure: it imports no client, logger or clock, and the same input gives the same output, in the same
// order. What to do about the result is decided in internal/plan.
package resolve
