// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do about one pod now.
//
// Next takes a Snapshot of the world and the time, and returns a Decision: actions, a reason, a message and when to look
// again. It walks an ordered list of rules; the first one that has a verdict wins, and the last one always has. "Do
// nothing" always has a reason.
//
// Attempts are read from the world, never remembered: a ContainerRecreateRequest, an annotation beside a swapped image,
// an annotation beside a written phase. An attempt is judged by the pod's status. It fails when its deadline has passed
// and the container is not ended, when the container came back, or when the mechanism gave up. After a failed attempt
// the next usable mode of the container's ladder follows, once each; when none is left the pod is stuck. A request that
// Kruise did not carry out is then repeated at growing intervals, but not one after which the container came back.
// A write that is refused is no attempt: the caller asks again, and the mode is passed over like one that cannot be used.
//
// Invariants, each with a test:
//   - nothing is done while a main container may run again, and no action names a main container;
//   - a container has at most one live attempt, and nothing is done once every sidecar has ended;
//   - the phase written is that of the main containers, and of the sidecars whose exit codes are respected; it is written
//     only where the operator's flags permit it, and as a last resort only where no image can be swapped;
//   - where nothing keeps the exit code of an ignored sidecar from counting, a swapped image goes before a request, but for a
//     declared CRR beside a failed main container;
//   - a value that a newer API lets through and this version does not know is not guessed.
//
// The package is pure: it imports no client, logger or clock. Writing is the business of internal/terminator.
package plan
