// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"testing"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// The operator can create only objects with its own label and owner, and delete only those.
func TestAdmissionLimitsKruiseObjects(t *testing.T) {
	installAdmission(t)
	admin := as(t, rest.ImpersonationConfig{})
	testenv.NewKruise(t, admin).Install(t)
	policy, pod := finishedPod(t, admin)
	operator := as(t, operatorUser())
	crr := func(change func(*kruise.ContainerRecreateRequest)) client.Object { return with(crrFor(pod), change) }
	pullJob := func(change func(*kruise.ImagePullJob)) client.Object { return with(pullJobFor(policy), change) }
	otherManager := func(r *kruise.ContainerRecreateRequest) {
		r.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
	}
	// The server reads the definitions and the admission policy by watches.
	awaitDenied(t, "only objects with label", func(ctx context.Context) error { return operator.Create(ctx, crr(otherManager), client.DryRunAll) })
	const (
		deniedOthers   = "may create and delete only objects with label"
		deniedOwner    = "only if its pod owns it"
		deniedStrategy = "may not set orderedRecreate"
		deniedJob      = "only if its policy owns it"
	)
	for name, tc := range map[string]struct {
		object client.Object
		denied string // empty if the write is accepted
	}{
		"CRR": {object: crrFor(pod)},
		"CRR with grace period": {object: crr(func(r *kruise.ContainerRecreateRequest) {
			r.Spec.Strategy.TerminationGracePeriodSeconds = ptr.To[int64](30)
		})},
		"CRR with other manager": {object: crr(otherManager), denied: deniedOthers},
		"CRR without owner":      {object: crr(func(r *kruise.ContainerRecreateRequest) { r.OwnerReferences = nil }), denied: deniedOwner},
		"CRR owned by other pod": {object: crr(func(r *kruise.ContainerRecreateRequest) { r.OwnerReferences[0].Name = "another" }), denied: deniedOwner},
		"CRR owned by Job": {object: crr(func(r *kruise.ContainerRecreateRequest) {
			r.OwnerReferences[0].APIVersion, r.OwnerReferences[0].Kind = "batch/v1", "Job"
		}), denied: deniedOwner},
		"CRR with orderedRecreate":           {object: crr(func(r *kruise.ContainerRecreateRequest) { r.Spec.Strategy.OrderedRecreate = true }), denied: deniedStrategy},
		"CRR with minStartedSeconds":         {object: crr(func(r *kruise.ContainerRecreateRequest) { r.Spec.Strategy.MinStartedSeconds = 60 }), denied: deniedStrategy},
		"CRR with unreadyGracePeriodSeconds": {object: crr(func(r *kruise.ContainerRecreateRequest) { r.Spec.Strategy.UnreadyGracePeriodSeconds = ptr.To[int64](0) }), denied: deniedStrategy},
		"pull job":                           {object: pullJobFor(policy)},
		"pull job of cluster policy":         {object: pullJob(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Kind = "ClusterSidecarTerminationPolicy" })},
		"pull job with other manager":        {object: pullJob(func(j *kruise.ImagePullJob) { delete(j.Labels, "app.kubernetes.io/managed-by") }), denied: deniedOthers},
		"pull job without owner":             {object: pullJob(func(j *kruise.ImagePullJob) { j.OwnerReferences = nil }), denied: deniedJob},
		"pull job owned by pod":              {object: pullJob(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Kind = "Pod" }), denied: deniedJob},
		"pull job without controller":        {object: pullJob(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Controller = nil }), denied: deniedJob},
		"pull job of other policy":           {object: pullJob(func(j *kruise.ImagePullJob) { j.Labels[v1alpha1.LabelPolicy] = "another" }), denied: deniedJob},
		"pull job without policy label":      {object: pullJob(func(j *kruise.ImagePullJob) { delete(j.Labels, v1alpha1.LabelPolicy) }), denied: deniedJob},
	} {
		t.Run(name, func(t *testing.T) {
			requireDenied(t, operator.Create(t.Context(), tc.object, client.DryRunAll), tc.denied, "")
		})
	}
	t.Run("other users are not limited", func(t *testing.T) {
		theirs := crr(otherManager)
		requireDenied(t, admin.Create(t.Context(), theirs, client.DryRunAll), "", "")
	})
	for name, tc := range map[string]struct {
		object client.Object
		denied string // empty if the deletion is accepted
	}{
		"delete own CRR":        {object: crrFor(pod)},
		"delete other CRR":      {object: crr(otherManager), denied: deniedOthers},
		"delete own pull job":   {object: pullJobFor(policy)},
		"delete other pull job": {object: pullJob(func(j *kruise.ImagePullJob) { j.Labels = map[string]string{"team": "etl"} }), denied: deniedOthers},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, admin, tc.object)
			requireDenied(t, operator.Delete(t.Context(), tc.object), tc.denied, "")
		})
	}
}

// The operator can report events under its own name only.
func TestAdmissionLimitsEvents(t *testing.T) {
	installAdmission(t)
	admin := as(t, rest.ImpersonationConfig{})
	_, pod := finishedPod(t, admin)
	operator := as(t, operatorUser())
	event := func(reporter string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "event-"}, EventTime: metav1.NowMicro(),
			ReportingController: reporter, ReportingInstance: "manager-0", Action: "Terminate", Reason: "Terminating", Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		}
	}
	const denied = "only events whose reportingController is sidecar-termination-operator"
	awaitDenied(t, denied, func(ctx context.Context) error {
		return operator.Create(ctx, event("kubelet"), client.DryRunAll)
	})
	requireDenied(t, operator.Create(t.Context(), event(settings.Name)), "", "")
	requireDenied(t, admin.Create(t.Context(), event("kubelet")), "", "")
	for reporter, want := range map[string]string{settings.Name: "", "kubelet": denied} {
		written := event(reporter)
		create(t, admin, written)
		requireDenied(t, operator.Patch(t.Context(), written, patchOf(types.MergePatchType, "series: {count: 2, lastObservedTime: '2026-01-01T00:00:00.000000Z'}")), want, "")
	}
}

// with returns the object after the change.
func with[T client.Object](object T, change func(T)) T {
	change(object)
	return object
}

// crrFor returns the CRR that the operator creates for the pod's sidecar.
func crrFor(pod *corev1.Pod) *kruise.ContainerRecreateRequest {
	return &kruise.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "sidecar-termination-", Labels: map[string]string{"app.kubernetes.io/managed-by": settings.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: kruise.ContainerRecreateRequestSpec{
			PodName:    pod.Name,
			Containers: []kruise.ContainerRecreateRequestContainer{{Name: "proxy"}},
			Strategy:   &kruise.ContainerRecreateRequestStrategy{FailurePolicy: kruise.ContainerRecreateRequestFailurePolicyIgnore, ForceRecreate: true},
		},
	}
}

// pullJobFor returns an ImagePullJob that the operator creates for the policy.
func pullJobFor(policy *v1alpha1.SidecarTerminationPolicy) *kruise.ImagePullJob {
	return &kruise.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: policy.Namespace, GenerateName: "sidecar-termination-",
			Labels: map[string]string{"app.kubernetes.io/managed-by": settings.Name, v1alpha1.LabelPolicy: policy.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "SidecarTerminationPolicy", Name: policy.Name, UID: policy.UID, Controller: ptr.To(true),
			}},
		},
		Spec: kruise.ImagePullJobSpec{
			Image:                "quick-exit:1",
			ImagePullJobTemplate: kruise.ImagePullJobTemplate{CompletionPolicy: kruise.CompletionPolicy{Type: kruise.Never}},
		},
	}
}
