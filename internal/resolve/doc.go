// SPDX-License-Identifier: Apache-2.0

// Package resolve decides which containers of a pod are sidecars, with which settings, and which policies are overridden.
//
// The first that classifies a regular container decides its role: policies in order of precedence, then the pod's annotation, then
// OpenKruise's environment variables on the container. Every container that none of them classifies is a main container. Among the
// policies that select the pod, a namespaced one takes precedence over a cluster policy, then the higher priority, then the older
// policy, then the first name. Each setting of a sidecar comes from the first place that sets it: the entry and then the spec of each
// policy that declares the sidecar, the container's environment variables, the operator's default.
//
// The package is pure: it imports no client, logger or clock, and the same input gives the same output, in the same
// order. Package plan decides what to do with the result.
package resolve
