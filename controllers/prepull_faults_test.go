// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// pullTrial creates, replaces and deletes pull jobs with faults in the operator's writes.
type pullTrial struct {
	*bench
	wire   *wire
	policy *v1alpha1.SidecarTerminationPolicy
}

func newPullTrial(b *bench, number int, choose func(int) fault) *pullTrial {
	b.Helper()
	tr := &pullTrial{bench: b, wire: &wire{choose: choose, arrived: func(string) {}}}
	limited := asOperator()
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper {
		tr.wire.next = next
		return tr.wire
	})
	c, err := client.New(limited, client.Options{Scheme: scheme, Mapper: b.RESTMapper()})
	if err != nil {
		b.Fatal(err)
	}
	b.prePulls.prePulls.jobs.Client = c
	tr.policy = b.newPolicy(fmt.Sprintf("mesh-%d", number), withPrePull, func(spec *v1alpha1.PolicySpec) {
		spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}, {Name: "logger", TerminationSettings: v1alpha1.TerminationSettings{Image: "other:v2"}}}
	})
	return tr
}

// converge reconciles until nothing is left to do, like a work queue, and returns the jobs.
func (tr *pullTrial) converge() []string {
	tr.Helper()
	for range 20 {
		tr.knowsPolicyAndJobs(tr.policy)
		writes := tr.wire.number
		tr.wire.last = noFault
		result, err := tr.prePulls.Reconcile(tr.Context(), resolve.RefOf(tr.policy))
		met := tr.wire.last
		switch {
		case met == crashed:
			tr.prePulls.prePulls.states = &policyStates{}
		case met != noFault && err == nil && result.IsZero():
			tr.Errorf("%s was ignored", met)
		case err == nil && result.IsZero() && tr.wire.number == writes:
			var jobs []string
			for _, job := range tr.pullJobs() {
				selector := ""
				if job.Spec.Selector != nil {
					selector = metav1.FormatLabelSelector(&job.Spec.Selector.LabelSelector)
				}
				jobs = append(jobs, job.Spec.Image+" on "+selector)
			}
			slices.Sort(jobs)
			return jobs
		}
	}
	tr.Fatalf("does not converge: %q", tr.wire.sites)
	return nil
}

// run returns the jobs after each step, and all accepted writes.
func (tr *pullTrial) run() []string {
	tr.Helper()
	result := tr.converge()
	tr.policy.Spec.PrePull.NodeLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}
	tr.update(tr.policy)
	result = append(result, tr.converge()...)
	tr.policy.Spec.PrePull = nil
	tr.update(tr.policy)
	result = append(result, tr.converge()...)
	tr.remove(tr.policy)
	slices.Sort(tr.wire.done)
	return append(result, tr.wire.done...)
}

func TestFaultAnyAnswerToPullJobWrites(t *testing.T) {
	b := newPrePullBench(t, newKruise(t))
	undisturbed := newPullTrial(b, 0, nil)
	want := undisturbed.run()
	sites := slices.Compact(slices.Sorted(slices.Values(undisturbed.wire.sites)))
	if diff := cmp.Diff([]string{"DELETE imagepulljobs", "POST imagepulljobs"}, sites); diff != "" {
		t.Errorf("sites (-want +got):\n%s", diff)
	}
	faults := append(slices.Clone(answers), crashed)
	runs := 0
	for number := range undisturbed.wire.number {
		for i, f := range faults {
			if !every && (number+i)%3 != 0 {
				continue
			}
			runs++
			tr := newPullTrial(b, runs, onceAt(number+1, f))
			if diff := cmp.Diff(want, tr.run()); diff != "" || len(tr.wire.met) != 1 {
				t.Errorf("write %d: %s, %d faults: (-undisturbed +disturbed)\n%s", number+1, f, len(tr.wire.met), diff)
			}
		}
	}
	t.Logf("%d writes, %d runs with a fault; undisturbed:\n%s", undisturbed.wire.number, runs, strings.Join(want, "\n"))
}

// The names of jobs, of objects of OpenKruise's daemon and of labels hold a policy's name in 63 characters.
func TestPullJobsWithLongestNames(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.inLongNamespace()
	options := testOptions()
	options.PrePullNamespace = systemNamespace
	f.startOperator(options)
	policy := f.newPolicy(long("mesh-"), withPrePull)
	f.wantPrePulled(policy, "False PrePulling")
	f.pulled(3, 3)
	f.wantPrePulled(policy, "True PrePulled")
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: long("cluster-mesh-")}}
	cluster.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	cluster.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"none": "none"}}
	withPrePull(&cluster.Spec.PolicySpec)
	f.create(cluster)
	t.Cleanup(func() {
		if err := f.Delete(context.WithoutCancel(t.Context()), cluster); err != nil {
			t.Error(err)
		}
	})
	f.wantPrePulled(cluster, "False PrePulling")
	testenv.Eventually(t, "the operator's namespace has a job", func(ctx context.Context) error {
		var ofCluster kruise.ImagePullJobList
		if err := f.List(ctx, &ofCluster, client.InNamespace(systemNamespace)); err != nil {
			return err
		}
		if len(ofCluster.Items) != 1 || !metav1.IsControlledBy(&ofCluster.Items[0], cluster) {
			return fmt.Errorf("it has %+v", ofCluster.Items)
		}
		return nil
	})
	for _, job := range f.pullJobs() {
		if len(job.Name) != 63 || len(job.Labels[v1alpha1.LabelPolicy]) > 63 {
			t.Errorf("the job has name %q and labels %v", job.Name, job.Labels)
		}
	}
	policy.Spec.PrePull = nil
	f.update(policy)
	testenv.Eventually(t, "the job is deleted", func(context.Context) error {
		if jobs := f.pullJobs(); len(jobs) > 0 {
			return fmt.Errorf("there are %d", len(jobs))
		}
		return nil
	})
	f.nothingWentWrong()
}
