// SPDX-License-Identifier: Apache-2.0

// Package source reads the input of internal/explain from a cluster or from manifests. Both are readers of Kubernetes objects,
// which internal/policyindex and internal/observe use like the operator's caches.
package source
