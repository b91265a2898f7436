// SPDX-License-Identifier: Apache-2.0

// Package controllers wires the operator to a cluster. Its three reconcilers read, call the pure packages, write and report.
//
//	pods, nodes, policies ─> PodReconciler:     clusterReader ─> resolve.Resolve ─> plan.Next ─> terminators
//	                                                                                  │
//	                                                                              podStates ─> reporter: events, metrics
//	                                                                                              │ tallies
//	policies ──────────────> PolicyReconciler:  clusterReader ─> rollup.Summarize ─> one status write
//	policies ──────────────> PrePullReconciler: pulljob.Jobs ──> prepull.Decide ───> pull jobs
//
// PodReconciler alone acts on pods, PolicyReconciler alone writes the statuses of policies, and PrePullReconciler alone writes pull
// jobs. Each derives its actions from the cluster on every call. podStates and policyStates hold what the cluster cannot tell: what
// was reported, for how long a pod has been stable, and writes that were denied or not answered. After a restart the operator works
// without them.
//
// Decisions live in internal/resolve, internal/plan, internal/rollup and internal/prepull; mechanisms in internal/terminator; caches
// in internal/podcache and internal/policyindex. Only internal/terminator/crr and internal/prepull/pulljob know OpenKruise's types.
package controllers
