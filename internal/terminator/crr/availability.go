// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"slices"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/sidecar-termination/operator/internal/optionalkind"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=containerrecreaterequests.apps.kruise.io,verbs=list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=kruise-mutating-webhook-configuration,verbs=list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=containerrecreaterequests,verbs=list;watch;create;delete,roleName=sidecar-termination-manager-crr-role

const (
	// DefinitionName is the name of the definition of ContainerRecreateRequests.
	DefinitionName = "containerrecreaterequests.apps.kruise.io"
	// WebhookConfigurationName is the name of OpenKruise's webhook configuration. Without that webhook CRRs are not safe.
	WebhookConfigurationName = "kruise-mutating-webhook-configuration"

	resource = "containerrecreaterequests"
)

// AddToScheme registers OpenKruise's types.
func AddToScheme(scheme *runtime.Scheme) error {
	return kruise.AddToScheme(scheme)
}

// NewAvailability returns the availability of CRRs: OpenKruise serves them, and its mutating webhook, which binds a CRR to its
// pod, cannot be bypassed. It calls onChange at each change, and onProgress when OpenKruise has stopped the containers of a CRR or finished
// it.
//
// Wait until the availability is known before acting. Otherwise an operator that has just started would switch from CRR
// to another mode.
func NewAvailability(c cluster.Cluster, onChange func(ctx context.Context), onProgress func(pod types.NamespacedName)) *optionalkind.Availability {
	return optionalkind.NewAvailability(optionalkind.Config{
		Cluster: c, Example: &kruise.ContainerRecreateRequest{}, Definition: DefinitionName, Webhook: WebhookConfigurationName, Guards: GuardsCRRs,
		Owner: ownerPodUID, Handler: whenProgressed(onProgress), OnChange: onChange,
	})
}

// GuardsCRRs reports whether the configuration sends every CRR to OpenKruise's webhook and denies them while it is down. A CRR
// that has not passed the webhook can name containers of any pod of the node and run commands in them.
func GuardsCRRs(configuration admissionv1.MutatingWebhookConfiguration) bool {
	selectsAll := func(selector *metav1.LabelSelector) bool {
		return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
	}
	return slices.ContainsFunc(configuration.Webhooks, func(webhook admissionv1.MutatingWebhook) bool {
		return webhook.FailurePolicy != nil && *webhook.FailurePolicy == admissionv1.Fail && len(webhook.MatchConditions) == 0 &&
			selectsAll(webhook.NamespaceSelector) && selectsAll(webhook.ObjectSelector) &&
			slices.ContainsFunc(webhook.Rules, func(rule admissionv1.RuleWithOperations) bool {
				return slices.Contains(rule.APIGroups, kruise.GroupVersion.Group) && slices.Contains(rule.Resources, resource) &&
					slices.Contains(rule.Operations, admissionv1.Create)
			})
	})
}

// IsServed reports whether the cluster serves CRRs. It needs no permission to read definitions.
func IsServed(mapper meta.RESTMapper) bool {
	_, err := mapper.RESTMapping(kruise.SchemeGroupVersion.WithKind("ContainerRecreateRequest").GroupKind(), kruise.GroupVersion.Version)
	return err == nil
}

func ownerPodUID(object client.Object) []string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Pod" {
			return []string{string(owner.UID)}
		}
	}
	return nil
}

// whenProgressed calls onProgress with the pod of each CRR whose containers OpenKruise has just stopped, or which it has just finished. A
// lost watch may skip the versions before that one. All other effects of a CRR show in the pod's own status.
func whenProgressed(onProgress func(pod types.NamespacedName)) toolscache.ResourceEventHandler {
	compare := func(before, after any) {
		crr, ok := after.(*kruise.ContainerRecreateRequest)
		if ok && (isFinished(crr) && !isFinished(before) || hasStopped(crr) && !hasStopped(before)) {
			onProgress(types.NamespacedName{Namespace: crr.Namespace, Name: crr.Spec.PodName})
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if !isInInitialList {
				compare(nil, object)
			}
		},
		UpdateFunc: compare,
	}
}

func isFinished(object any) bool {
	crr, ok := object.(*kruise.ContainerRecreateRequest)
	return ok && crr.Status.CompletionTime != nil
}

// hasStopped reports whether OpenKruise's daemon has stopped every container of the CRR (manage in
// pkg/daemon/containerrecreate/crr_daemon_controller.go).
func hasStopped(object any) bool {
	crr, ok := object.(*kruise.ContainerRecreateRequest)
	return ok && len(crr.Status.ContainerRecreateStates) > 0 && !slices.ContainsFunc(crr.Status.ContainerRecreateStates,
		func(state kruise.ContainerRecreateRequestContainerRecreateState) bool { return !state.IsKilled })
}
