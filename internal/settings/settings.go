// SPDX-License-Identifier: Apache-2.0

// Package settings holds the operator's flags and what they mean, its names and its version. The operator runs with these
// settings; the command line reads them from the operator's Deployment.
package settings

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Operator are the settings of an operator.
type Operator struct {
	Decisions
	// PrePullNamespace is the namespace of the ImagePullJobs of cluster policies; empty when unknown.
	PrePullNamespace string
	// StatusPeriod is the shortest time between two writes of one policy's status.
	StatusPeriod time.Duration
	// MaxConcurrentReconciles bounds how many pods are reconciled at once.
	MaxConcurrentReconciles int
	Lease                   Lease
	Metrics                 Metrics
	// ProbeAddress serves /healthz and /readyz.
	ProbeAddress string
	// PprofAddress serves Go profiles; empty for none.
	PprofAddress string
	// ShutdownTimeout bounds how long in-flight work may take on shutdown.
	ShutdownTimeout time.Duration
	Log             zap.Options
}

// Decisions are the settings that the decision about a pod depends on.
type Decisions struct {
	// Resolve holds the defaults of policies, and whether environment variables declare sidecars.
	Resolve resolve.Options
	// NodeKindRules say which nodes have no kubelet or no OpenKruise daemon.
	NodeKindRules plan.NodeKindRules
	// Capabilities are what the flags allow. CRRServed is false: only a cluster can tell.
	Capabilities plan.Capabilities
	// WatchNamespaces are the only namespaces whose pods and policies the operator reads, sorted. Of objects without a namespace it
	// then reads nodes at most. They are empty for the whole cluster.
	WatchNamespaces []string
}

// Watches reports whether the operator reads pods and policies of the namespace. The empty namespace stands for objects without one,
// such as cluster policies.
func (d Decisions) Watches(namespace string) bool {
	return len(d.WatchNamespaces) == 0 || slices.Contains(d.WatchNamespaces, namespace)
}

// Lease is the lease of leader election.
type Lease struct {
	// Name is empty when leader election is off, so that every replica acts.
	Name string
	// Namespace is empty for the operator's own.
	Namespace string
}

// Metrics says how metrics are served.
type Metrics struct {
	// Address is empty when metrics are off.
	Address string
	// Authenticated means HTTPS, and only for clients that the cluster permits to get /metrics.
	Authenticated bool
	// CertDir holds the serving certificate; empty for a self-signed one.
	CertDir string
}
