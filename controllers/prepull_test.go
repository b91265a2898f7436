// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

func withPrePull(spec *v1alpha1.PolicySpec) { spec.PrePull = &v1alpha1.PrePull{} }

// pulls reconciles the policy's pull jobs with current caches.
func (b *bench) pulls(policy *v1alpha1.SidecarTerminationPolicy) {
	b.Helper()
	b.knowsPolicyAndJobs(policy)
	result, err := b.prePulls.Reconcile(b.Context(), refOf(policy))
	if err != nil {
		b.Fatalf("reconcile: %v", err)
	}
	if result.RequeueAfter != 0 {
		b.Errorf("requeued after %s", result.RequeueAfter)
	}
}

func (b *bench) knowsPolicyAndJobs(policy *v1alpha1.SidecarTerminationPolicy) {
	b.Helper()
	b.reload(policy)
	testenv.Eventually(b.T, "the caches have the policy and its jobs", func(ctx context.Context) error {
		cached := &v1alpha1.SidecarTerminationPolicy{}
		if err := b.policies.client.Get(ctx, client.ObjectKeyFromObject(policy), cached); err != nil {
			return err
		}
		if cached.ResourceVersion != policy.ResourceVersion {
			return fmt.Errorf("the policy is at version %s and not %s", cached.ResourceVersion, policy.ResourceVersion)
		}
		known, err := b.prePulls.prePulls.jobs.Of(ctx, policy.UID)
		if err != nil {
			return err
		}
		var knownJobs, liveJobs []string
		for _, job := range known {
			knownJobs = append(knownJobs, fmt.Sprint(job.Name, job.Begun, job.Succeeded, job.Failed))
		}
		for _, job := range b.pullJobs() {
			liveJobs = append(liveJobs, fmt.Sprint(job.Name, job.Status.StartTime != nil, job.Status.Succeeded, job.Status.Failed))
		}
		if diff := cmp.Diff(set(liveJobs), set(knownJobs)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

func set(elements []string) map[string]bool {
	all := map[string]bool{}
	for _, e := range elements {
		all[e] = true
	}
	return all
}

// pullJobs returns the jobs of the namespace.
func (f *fixture) pullJobs() []kruise.ImagePullJob {
	f.Helper()
	var list kruise.ImagePullJobList
	if err := f.List(f.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		f.Fatal(err)
	}
	return list.Items
}

// images returns the images of the namespace's jobs.
func (f *fixture) images() []string {
	f.Helper()
	var images []string
	for _, job := range f.pullJobs() {
		images = append(images, job.Spec.Image)
	}
	return images
}

// pulled writes the status of every job of the namespace, as OpenKruise's manager would.
func (f *fixture) pulled(desired, succeeded int32, failed ...string) {
	f.Helper()
	var jobs []kruise.ImagePullJob
	testenv.Eventually(f.T, "there is a job", func(context.Context) error {
		if jobs = f.pullJobs(); len(jobs) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	for i := range jobs {
		now := metav1.Now()
		jobs[i].Status = kruise.ImagePullJobStatus{
			StartTime: &now, Desired: desired, Succeeded: succeeded, Failed: int32(len(failed)), FailedNodes: failed,
			Active: desired - succeeded - int32(len(failed)),
		}
		if err := f.Status().Update(f.Context(), &jobs[i]); err != nil {
			f.Fatalf("write status of job: %v", err)
		}
	}
}

// prePulled returns the condition as "status reason message", or "".
func prePulled(status v1alpha1.PolicyStatus) string {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPrePulled)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func (b *bench) says(policy *v1alpha1.SidecarTerminationPolicy, want string) {
	b.Helper()
	b.knowsPolicyAndJobs(policy)
	b.summarise(policy)
	b.reload(policy)
	if got := prePulled(policy.Status); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
		b.Errorf("the policy says %q, want %q", got, want)
	}
	if !meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady) {
		b.Error("the policy is not ready, which must not depend on images")
	}
}

func newPrePullBench(t *testing.T, withKruise *testenv.Kruise) *bench {
	t.Helper()
	options := testOptions()
	options.StatusPeriod = 0
	options.PrePullNamespace = systemNamespace
	return newBench(t, options, withKruise)
}

func TestPullJobsFollowPolicy(t *testing.T) {
	b := newPrePullBench(t, newKruise(t))
	policy := b.newPolicy("mesh", withPrePull)
	b.pulls(policy)
	b.says(policy, "False PrePulling "+quickExit+" is waiting for OpenKruise to start the ImagePullJob")
	jobs := b.pullJobs()
	if len(jobs) != 1 || jobs[0].Spec.Image != quickExit || !metav1.IsControlledBy(&jobs[0], policy) || jobs[0].Labels[v1alpha1.LabelPolicy] != "mesh" {
		t.Fatalf("got jobs %+v", jobs)
	}
	b.pulls(policy)
	b.wrote("POST imagepulljobs", "PUT sidecarterminationpolicies/status")

	b.pulled(3, 1)
	b.says(policy, "False PrePulling "+quickExit+" is on 1 of 3 nodes")
	b.pulled(3, 2, "node-7")
	b.says(policy, "False PrePullFailed "+quickExit+" is on 2 of 3 nodes and could not be pulled to node-7. The cause is in the events")
	b.pulled(3, 3)
	b.pulls(policy)
	b.says(policy, "True PrePulled "+quickExit+" is on 3 of 3 nodes")

	// The policy names another image for one of two sidecars.
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}, {Name: "logger", TerminationSettings: v1alpha1.TerminationSettings{Image: "other:v2"}}}
	b.update(policy)
	b.pulls(policy)
	b.says(policy, "False PrePulling other:v2 is waiting for OpenKruise to start the ImagePullJob")
	if diff := cmp.Diff(set([]string{quickExit, "other:v2"}), set(b.images())); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	policy.Spec.Sidecars[0].Image = "other:v2"
	b.update(policy)
	b.pulls(policy)
	if diff := cmp.Diff([]string{"other:v2"}, b.images()); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}

	policy.Spec.PrePull = nil
	b.update(policy)
	b.pulls(policy)
	b.says(policy, "")
	if got := b.images(); len(got) > 0 {
		t.Errorf("still there: %v", got)
	}
}

// OpenKruise does not pass every change of a job on to nodes, so the operator replaces the job.
func TestPullSettingsChangeReplacesJob(t *testing.T) {
	b := newPrePullBench(t, newKruise(t))
	policy := b.newPolicy("mesh", withPrePull)
	b.pulls(policy)
	before := b.pullJobs()[0]
	policy.Spec.PrePull = &v1alpha1.PrePull{
		NodeSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}},
		PullSecrets:   []v1alpha1.SecretName{"registry"},
		SandboxConfig: &v1alpha1.SandboxConfig{Labels: map[string]string{"tenant": "etl"}, Annotations: map[string]string{"lazy": "true"}},
	}
	b.update(policy)
	b.pulls(policy)
	b.knowsPolicyAndJobs(policy)
	b.pulls(policy)
	jobs := b.pullJobs()
	if len(jobs) != 1 || jobs[0].UID == before.UID {
		t.Fatalf("got jobs %+v", jobs)
	}
	want := kruise.ImagePullJobTemplate{
		Selector:         &kruise.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}},
		PullSecrets:      []string{"registry"},
		SandboxConfig:    &kruise.SandboxConfig{Labels: map[string]string{"tenant": "etl"}, Annotations: map[string]string{"lazy": "true"}},
		Parallelism:      ptr.To(intstr.FromInt32(10)),
		CompletionPolicy: kruise.CompletionPolicy{Type: kruise.Never},
		// OpenKruise's webhook sets the rest.
		PullPolicy:      &kruise.PullPolicy{TimeoutSeconds: ptr.To[int32](600), BackoffLimit: ptr.To[int32](3)},
		ImagePullPolicy: kruise.PullIfNotPresent,
	}
	if diff := cmp.Diff(want, jobs[0].Spec.ImagePullJobTemplate); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestForeignPullJobsAreLeftAlone(t *testing.T) {
	b := newPrePullBench(t, newKruise(t))
	other := &kruise.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other", Labels: map[string]string{
		"app.kubernetes.io/managed-by": settings.Name, v1alpha1.LabelPolicy: "mesh",
	}}, Spec: kruise.ImagePullJobSpec{Image: "other:v1", ImagePullJobTemplate: kruise.ImagePullJobTemplate{CompletionPolicy: kruise.CompletionPolicy{Type: kruise.Never}}}}
	b.create(other)
	policy := b.newPolicy("mesh")
	if _, err := b.prePulls.Reconcile(b.Context(), refOf(policy)); err != nil {
		t.Fatal(err)
	}
	b.wrote()
}

func TestClusterPolicyPullJobsLiveWithOperator(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	options := testOptions()
	options.PrePullNamespace = systemNamespace
	f.startOperator(options)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	withPrePull(&policy.Spec.PolicySpec)
	f.create(policy)
	testenv.Eventually(t, "the job is there and its state is reported", func(ctx context.Context) error {
		var jobs kruise.ImagePullJobList
		if err := f.List(ctx, &jobs, client.InNamespace(systemNamespace)); err != nil {
			return err
		}
		if len(jobs.Items) != 1 || !metav1.IsControlledBy(&jobs.Items[0], policy) {
			return fmt.Errorf("got jobs %v", jobs.Items)
		}
		if err := f.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if got := prePulled(policy.Status); !strings.HasPrefix(got, "False PrePulling") {
			return fmt.Errorf("the policy says %q", got)
		}
		return nil
	})
}

// wantPrePulled waits for the policy's condition.
func (f *fixture) wantPrePulled(policy *v1alpha1.SidecarTerminationPolicy, want string) {
	f.Helper()
	testenv.Eventually(f.T, "the policy says "+want, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if got := prePulled(policy.Status); !strings.HasPrefix(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

func TestPullJobsFollowKruise(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", withPrePull)
	f.wantPrePulled(policy, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
	for range 2 {
		k.Install(t)
		f.wantPrePulled(policy, "False PrePulling")
		f.pulled(1, 1)
		f.wantPrePulled(policy, "True PrePulled")
		k.Remove(t)
		f.wantPrePulled(policy, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
	}
}

func TestDeletedPullJobIsRecreated(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", withPrePull)
	f.wantPrePulled(policy, "False PrePulling")
	f.pulled(1, 0, "node-7")
	f.wantPrePulled(policy, "False PrePullFailed")
	f.remove(&f.pullJobs()[0])
	f.wantPrePulled(policy, "False PrePulling")
	f.pulled(1, 1)
	f.wantPrePulled(policy, "True PrePulled")
}

func TestDeniedPullJobIsReportedAndRetried(t *testing.T) {
	k := newKruise(t)
	b := newPrePullBench(t, k)
	policy := b.newPolicy("mesh", withPrePull)
	k.DenyJobs("feature-gate ImagePullJobGate is not enabled")
	b.knowsPolicyAndJobs(policy)
	result, err := b.prePulls.Reconcile(t.Context(), refOf(policy))
	if err != nil || result.RequeueAfter != pullDenialRetry {
		t.Fatalf("got %+v and error %v", result, err)
	}
	b.says(policy, "False PrePullUnavailable the ImagePullJob was denied: ")
	if got := prePulled(policy.Status); !strings.Contains(got, "feature-gate ImagePullJobGate is not enabled") {
		t.Errorf("the policy does not say why: %s", got)
	}
	k.DenyJobs("")
	b.pulls(policy)
	b.says(policy, "False PrePulling")
}

func TestDisabledPrePullNeedsNoPermissions(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	options := testOptions()
	options.Capabilities.PrePull = false
	f.startOperator(options)
	policy := f.newPolicy("mesh", withPrePull)
	f.wantPrePulled(policy, "False PrePullUnavailable the operator runs with --pre-pull=Disabled")
	if got := f.images(); len(got) > 0 {
		t.Errorf("pulled all the same: %v", got)
	}
}
