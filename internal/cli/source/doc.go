// SPDX-License-Identifier: Apache-2.0

// Package source reads what there is to explain: from a cluster, or from manifests. Both are readers of Kubernetes
// objects; internal/observe makes of them what the operator makes of its caches.
package source
