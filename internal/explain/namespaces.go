// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// maxNamespaces limits the namespaces that a message lists.
const maxNamespaces = 5

// isWatched reports whether the operator watches the pod's namespace.
func (x *explainer) isWatched() bool { return x.operator.Watches(x.Pod.Pod.Namespace) }

func (x *explainer) notWatched() string {
	return fmt.Sprintf("the operator does not watch namespace %s, but only %s", x.Pod.Pod.Namespace, watched(x.operator))
}

// watched lists the namespaces that the operator watches.
func watched(operator settings.Decisions) string {
	return safetext.List(operator.WatchNamespaces, maxNamespaces, ", ")
}

// checkNamespace finds a pod with several containers in a namespace that the operator does not watch. In a pod with one there is no
// sidecar to end.
func (x *explainer) checkNamespace() []Finding {
	if x.isWatched() || !IsJobType(x.Pod.Pod) || len(x.Pod.Pod.Spec.Containers)+len(x.Injected) < 2 {
		return []Finding{}
	}
	return []Finding{finding(SeverityWarning, v1alpha1.ReasonNamespaceNotWatched, "", x.notWatched())}
}

// notWatched finds a policy that the operator does not read.
func (p Policy) notWatched(operator settings.Decisions) []Finding {
	namespace := p.Ref.Namespace
	if operator.Watches(namespace) {
		return nil
	}
	f := finding(SeverityProblem, v1alpha1.ReasonNamespaceNotWatched, "",
		fmt.Sprintf("the operator does not watch namespace %s, but only %s", namespace, watched(operator)))
	if namespace == "" {
		f.Message = "the operator runs with --watch-namespaces and reads no cluster policies"
		f.Hint = "write a SidecarTerminationPolicy in each namespace, or install the operator for the whole cluster"
	}
	return []Finding{f}
}
