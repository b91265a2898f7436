// SPDX-License-Identifier: Apache-2.0

// Package podcache holds the operator's caches of pods and keeps them small.
//
//	                      ┌─ unfinished pods (ManagerOptions) ──────┐
//	API server ─ TrimPod ─┤                                         ├─ Stores: Pods, PodsOnNode
//	                      └─ pods in teardown (NewTeardown, filter) ┘
//
// A pod is in teardown once the operator has written its phase, until its containers have ended. That write takes the pod out
// of the first cache and into the second one; either cache may see it first.
package podcache
