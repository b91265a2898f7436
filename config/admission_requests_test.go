// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// Whoever holds the operator's ServiceAccount asks OpenKruise for nothing that does not look like what the operator asks for, and
// takes nothing away that others have asked for.
func TestTheOperatorAsksOfOpenKruiseWhatIsItsOwn(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin := as(t, rest.ImpersonationConfig{})
	testenv.NewKruise(t, admin).Install(t)
	policy, pod := finishedPod(t, admin)
	operator := as(t, operatorUser())
	awaitRequestLimits(t, operator, pod)

	request := func(change func(r *kruise.ContainerRecreateRequest)) client.Object {
		r := requestFor(pod)
		change(r)
		return r
	}
	job := func(change func(j *kruise.ImagePullJob)) client.Object {
		j := pullJobFor(policy)
		change(j)
		return j
	}
	const (
		refusedOthers   = "may create and delete only its own"
		refusedOwner    = "only with its pod as the owner"
		refusedStrategy = "only without orderedRecreate"
		refusedJob      = "only with its policy as the owner"
	)
	for name, tc := range map[string]struct {
		object  client.Object
		refused string // empty when the write is accepted
	}{
		"a request": {object: requestFor(pod)},
		"a request with a grace period, as OpenKruise fills it in": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Spec.Strategy.TerminationGracePeriodSeconds = ptr.To[int64](30)
		})},
		"a request as somebody else's": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
		}), refused: refusedOthers},
		"a request that nothing owns": {object: request(func(r *kruise.ContainerRecreateRequest) { r.OwnerReferences = nil }), refused: refusedOwner},
		"a request that another pod owns": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.OwnerReferences[0].Name = "another"
		}), refused: refusedOwner},
		"a request that a Job owns": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.OwnerReferences[0].APIVersion, r.OwnerReferences[0].Kind = "batch/v1", "Job"
		}), refused: refusedOwner},
		"a request in an order": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Spec.Strategy.OrderedRecreate = true
		}), refused: refusedStrategy},
		"a request that waits for the new container": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Spec.Strategy.MinStartedSeconds = 60
		}), refused: refusedStrategy},
		"a request that makes the pod unready": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Spec.Strategy.UnreadyGracePeriodSeconds = ptr.To[int64](0)
		}), refused: refusedStrategy},
		"a job":                      {object: pullJobFor(policy)},
		"a job of the cluster kind":  {object: job(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Kind = "ClusterSidecarTerminationPolicy" })},
		"a job as somebody else's":   {object: job(func(j *kruise.ImagePullJob) { delete(j.Labels, "app.kubernetes.io/managed-by") }), refused: refusedOthers},
		"a job that nothing owns":    {object: job(func(j *kruise.ImagePullJob) { j.OwnerReferences = nil }), refused: refusedJob},
		"a job that a pod owns":      {object: job(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Kind = "Pod" }), refused: refusedJob},
		"a job of no controller":     {object: job(func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Controller = nil }), refused: refusedJob},
		"a job of another policy":    {object: job(func(j *kruise.ImagePullJob) { j.Labels[v1alpha1.LabelPolicy] = "another" }), refused: refusedJob},
		"a job that names no policy": {object: job(func(j *kruise.ImagePullJob) { delete(j.Labels, v1alpha1.LabelPolicy) }), refused: refusedJob},
	} {
		t.Run(name, func(t *testing.T) {
			expectRefusal(t, operator.Create(t.Context(), tc.object, client.DryRunAll), tc.refused, "")
		})
	}
	t.Run("others are not held to it", func(t *testing.T) {
		theirs := request(func(r *kruise.ContainerRecreateRequest) {
			r.Labels, r.OwnerReferences = map[string]string{"app.kubernetes.io/managed-by": "other"}, nil
		})
		expectRefusal(t, admin.Create(t.Context(), theirs, client.DryRunAll), "", "")
	})
	for name, tc := range map[string]struct {
		object  client.Object
		refused string // empty when it may be deleted
	}{
		"its own request is deleted": {object: requestFor(pod)},
		"another's request is deleted": {object: request(func(r *kruise.ContainerRecreateRequest) {
			r.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
		}), refused: refusedOthers},
		"its own job is deleted":   {object: pullJobFor(policy)},
		"another's job is deleted": {object: job(func(j *kruise.ImagePullJob) { j.Labels = map[string]string{"team": "etl"} }), refused: refusedOthers},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, admin, tc.object)
			expectRefusal(t, operator.Delete(t.Context(), tc.object), tc.refused, "")
		})
	}
}

// awaitRequestLimits waits until the server holds the operator to what is its own, which it learns of by a watch.
func awaitRequestLimits(t *testing.T, operator client.Client, pod *corev1.Pod) {
	t.Helper()
	testenv.Eventually(t, "the operator is held to requests of its own", func(ctx context.Context) error {
		theirs := requestFor(pod)
		theirs.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
		if err := operator.Create(ctx, theirs, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "only its own") {
			return fmt.Errorf("got %w, want it refused", err)
		}
		return nil
	})
}

// requestFor is what the operator asks for to end the sidecar of the pod.
func requestFor(pod *corev1.Pod) *kruise.ContainerRecreateRequest {
	return &kruise.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "sidecar-termination-", Labels: map[string]string{"app.kubernetes.io/managed-by": "sidecar-termination-operator"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: kruise.ContainerRecreateRequestSpec{
			PodName:    pod.Name,
			Containers: []kruise.ContainerRecreateRequestContainer{{Name: "proxy"}},
			Strategy:   &kruise.ContainerRecreateRequestStrategy{FailurePolicy: kruise.ContainerRecreateRequestFailurePolicyIgnore, ForceRecreate: true},
		},
	}
}

// pullJobFor is what the operator asks for to have an image of the policy pulled.
func pullJobFor(policy *v1alpha1.SidecarTerminationPolicy) *kruise.ImagePullJob {
	return &kruise.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: policy.Namespace, GenerateName: "sidecar-termination-",
			Labels: map[string]string{"app.kubernetes.io/managed-by": "sidecar-termination-operator", v1alpha1.LabelPolicy: policy.Name},
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
