// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do about one pod now.
//
// Next takes a Snapshot and the time, and returns a Decision: actions, a reason, a message and when to requeue. It walks
// an ordered list of rules. The first rule that applies decides, and the last one always applies. "Do nothing" always
// has a reason.
//
// Before its main containers are done, a pod is marked, so that an admission policy decides its outcome in the kubelet's own status
// writes (outcome.go, config/admission/outcome.yaml). A mark carries what the policy has not decided by then (decide.go). Each mode has a
// file that says whether it can be used, what it writes and when an attempt has failed.
//
// Attempts are read from the cluster, never remembered: a ContainerRecreateRequest (CRR), the annotation of a swapped
// image, the mark of a pod that ends by its phase. The pod's status decides whether an attempt succeeded. An attempt fails when
// its deadline passes before the container has ended, when the container came back, or when the mechanism gave up.
//
// After a failed attempt the next usable mode of the sidecar's fallback chain follows, each mode once. When none is left
// the pod is stuck. A CRR that OpenKruise did not carry out is then repeated at growing intervals, unless the container came
// back after it. A denied write is no attempt: the caller decides again with that mode marked as unusable.
//
// Finish is Next for a person who ends the sidecars of a stuck pod with the command line.
//
// Invariants, each with a test:
//   - No action while a main container may run again, and no action names a main container.
//   - A container has at most one live attempt. No action follows once every sidecar has ended.
//   - A mark never lists a container whose exit code counts. A pod ends by its phase only once every sidecar may end.
//   - On a node whose kind is unknown, no pod ends by its phase: on a virtual node the sidecars would run on unseen.
//   - A setting that this version does not know leads to no action.
//
// The package is pure: it imports no client, logger or clock. Package terminator carries actions out.
package plan
