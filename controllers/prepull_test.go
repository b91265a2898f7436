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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/resolve"
)

func withPrePull(spec *v1alpha1.PolicySpec) { spec.PrePull = &v1alpha1.PrePull{} }

// pulls reconciles the policy's pull jobs with current caches.
func (b *bench) pulls(policy *v1alpha1.SidecarTerminationPolicy) {
	b.Helper()
	b.knowsPolicyAndJobs(policy)
	result, err := b.prePulls.Reconcile(b.Context(), resolve.RefOf(policy))
	if err != nil {
		b.Fatalf("reconcile: %v", err)
	}
	if result.RequeueAfter != 0 {
		b.Errorf("requeued after %s", result.RequeueAfter)
	}
}

func (b *bench) knowsPolicyAndJobs(policy *v1alpha1.SidecarTerminationPolicy) {
	b.Helper()
	b.knows(policy)
	testenv.Eventually(b.T, "the cache has the policy's jobs", func(ctx context.Context) error {
		known, err := b.prePulls.prePulls.jobs.Of(ctx, policy.UID)
		if err != nil {
			return err
		}
		var knownJobs, liveJobs []string
		for _, job := range known {
			knownJobs = append(knownJobs, fmt.Sprint(job.Name, job.Begun, job.Succeeded, job.Failed))
		}
		for _, job := range b.pullJobs() {
			if metav1.IsControlledBy(&job, policy) {
				liveJobs = append(liveJobs, fmt.Sprint(job.Name, job.Status.StartTime != nil, job.Status.Succeeded, job.Status.Failed))
			}
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
	return newBench(t, withKruise, func(o *Options) { o.PrePullNamespace = systemNamespace })
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

	// A job of somebody else is left alone, whatever its labels say, and a deleted one is created again.
	foreign := jobs[0].DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Namespace: b.namespace, Name: "foreign", Labels: foreign.Labels}
	foreign.Spec.Image = "foreign:v1"
	b.create(foreign)
	b.remove(&jobs[0])
	b.pulls(policy)
	b.says(policy, "False PrePulling "+quickExit+" is waiting for OpenKruise to start the ImagePullJob")

	// The policy names another image for one of two sidecars.
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}, {Name: "logger", TerminationSettings: v1alpha1.TerminationSettings{Image: "other:v2"}}}
	b.update(policy)
	b.pulls(policy)
	b.says(policy, "False PrePulling other:v2 is waiting for OpenKruise to start the ImagePullJob")
	if diff := cmp.Diff(set([]string{quickExit, "other:v2", "foreign:v1"}), set(b.images())); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	policy.Spec.Sidecars[0].Image = "other:v2"
	b.update(policy)
	b.pulls(policy)
	if diff := cmp.Diff(set([]string{"other:v2", "foreign:v1"}), set(b.images())); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}

	policy.Spec.PrePull = nil
	b.update(policy)
	b.pulls(policy)
	b.says(policy, "")
	if diff := cmp.Diff([]string{"foreign:v1"}, b.images()); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// wantPrePulled waits for the policy's condition.
func (f *fixture) wantPrePulled(policy v1alpha1.Policy, want string) {
	f.Helper()
	f.untilStatus(policy, "says "+want, func(s v1alpha1.PolicyStatus) bool { return strings.HasPrefix(prePulled(s), want) })
}

func TestDeniedPullJobIsReportedAndRetried(t *testing.T) {
	k := newKruise(t)
	b := newPrePullBench(t, k)
	policy := b.newPolicy("mesh", withPrePull)
	k.Deny("imagepulljobs", b.namespace, "feature-gate ImagePullJobGate is not enabled")
	b.knowsPolicyAndJobs(policy)
	result, err := b.prePulls.Reconcile(t.Context(), resolve.RefOf(policy))
	if err != nil || result.RequeueAfter != pullDenialRetry {
		t.Fatalf("got %+v and error %v", result, err)
	}
	b.says(policy, "False PrePullUnavailable the ImagePullJob was denied: ")
	if got := prePulled(policy.Status); !strings.Contains(got, "feature-gate ImagePullJobGate is not enabled") {
		t.Errorf("the policy does not say why: %s", got)
	}
	k.Deny("imagepulljobs", b.namespace, "")
	b.pulls(policy)
	b.says(policy, "False PrePulling")
}
