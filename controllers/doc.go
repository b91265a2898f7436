// SPDX-License-Identifier: Apache-2.0

// Package controllers wires the operator to a cluster: it reads, calls the pure packages, writes and reports.
//
//	watches ──> PodReconciler:    observe ──> resolve.Resolve ──> plan.Next ──> terminators ──> journal
//	                                                                                             │
//	policies ─> PolicyReconciler: observe ──> rollup.Summarize ──> one status write <────────────┘
//
// PodReconciler is the only one that acts on pods, PolicyReconciler the only one that writes policies' status. Both
// derive what they do from the world at every call. The journal remembers only what has been reported, so that events
// tell of transitions and totals count each pod once; losing it loses no action.
//
// Decisions live in internal/plan and internal/resolve, mechanisms in internal/terminator; neither belongs here.
package controllers
