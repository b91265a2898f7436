// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterSidecarTerminationPolicy ends sidecars of Job-type pods once the pods' main containers are done. It selects pods
// in the namespaces that it selects. For each container, a SidecarTerminationPolicy of the pod's own namespace takes
// precedence.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cstp,categories=sidecar-termination
// +kubebuilder:printcolumn:name="Sidecars",type=string,JSONPath=`.status.sidecars`,description="Containers that the policy declares as sidecars"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`,description="How sidecars end as far as the policy says"
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matchedPods`,description="Unfinished pods that the policy matches"
// +kubebuilder:printcolumn:name="Terminating",type=integer,JSONPath=`.status.terminatingPods`,description="Pods whose sidecars are being ended"
// +kubebuilder:printcolumn:name="Terminated",type=integer,JSONPath=`.status.terminatedPods`,description="Pods that finished after their sidecars were ended"
// +kubebuilder:printcolumn:name="Stuck",type=integer,JSONPath=`.status.stuckPods`,description="Pods whose sidecars could not be ended"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the operator can act on the policy"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the policy is ready or not: Enforced, DryRun, Idle, InvalidSelector"
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`,description="Why pods are stuck, or a mode cannot be used"
// +kubebuilder:printcolumn:name="Would-End",type=integer,priority=1,JSONPath=`.status.dryRunPods`,description="Pods whose sidecars would be ended now with enforcement Enforce"
// +kubebuilder:printcolumn:name="Last",type=date,priority=1,JSONPath=`.status.lastTerminationTime`,description="When a pod last finished after its sidecars were ended"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterSidecarTerminationPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is that of all objects.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired behavior.
	// +required
	Spec ClusterSidecarTerminationPolicySpec `json:"spec"`

	// status is the observed state.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// Parts implements Policy.
func (p *ClusterSidecarTerminationPolicy) Parts() (*PolicySpec, *PolicyStatus) {
	return &p.Spec.PolicySpec, &p.Status
}

// ClusterSidecarTerminationPolicySpec selects pods in namespaces, and declares which of their containers are sidecars.
type ClusterSidecarTerminationPolicySpec struct {
	PolicySpec `json:",inline"`

	// namespaceSelector selects the namespaces by label. Unset or {} selects every namespace.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 64) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 64)",message="namespaceSelector may hold at most 64 matchLabels and 64 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="each of the matchExpressions of namespaceSelector may hold at most 64 values"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ClusterSidecarTerminationPolicyList is a list of ClusterSidecarTerminationPolicy.
//
// +kubebuilder:object:root=true
type ClusterSidecarTerminationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSidecarTerminationPolicy `json:"items"`
}
