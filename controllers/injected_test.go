// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

// newJob creates a Job whose template has the containers. No controller makes its pods.
func (f *fixture) newJob(containers ...string) *batchv1.Job {
	f.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "job-"}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, name := range containers {
		job.Spec.Template.Spec.Containers = append(job.Spec.Template.Spec.Containers, corev1.Container{Name: name, Image: name + ":v1"})
	}
	f.create(job)
	return job
}

// of makes the Job the controller of the pod. The pod has none of the labels that a Job with manualSelector leaves out.
func of(job *batchv1.Job) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
}

func TestInjectedContainers(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	f.newPolicy("injected", func(spec *v1alpha1.PolicySpec) { spec.Sidecars, spec.IncludeInjected = nil, true })
	job := f.newJob("main")
	deleted := f.newJob("main")
	if err := f.Delete(t.Context(), deleted, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	var left []*corev1.Pod
	for name, labels := range map[string]func(*corev1.Pod){
		"own-sidecar":   of(f.newJob("main", "proxy")),
		"renamed-main":  of(f.newJob("worker")),
		"no-job":        func(*corev1.Pod) {},
		"job-is-gone":   of(deleted),
		"job-recreated": func(p *corev1.Pod) { of(job)(p); p.OwnerReferences[0].UID = "earlier" },
	} {
		left = append(left, f.newPod(name, podtest.MainDone, labels))
	}
	f.until(f.newPod("injected", podtest.MainDone, of(job)), "its phase is Succeeded", succeeded)
	for _, pod := range left {
		f.untouched(pod)
	}
	f.nothingWentWrong()
}

// Without the permission to get Jobs, the policy says what it lacks.
func TestInjectedContainersNeedJobs(t *testing.T) {
	f := newFixture(t)
	f.startNamespaced("Real", f.namespace)
	policy := f.newPolicy("injected", func(spec *v1alpha1.PolicySpec) { spec.IncludeInjected = true })
	named := f.newPod("named", podtest.MainDone)
	waiting := f.newPod("job-1", of(f.newJob("main")), func(p *corev1.Pod) {
		p.Spec.Containers[1].Name, p.Status.ContainerStatuses[1].Name = "agent", "agent"
	})
	f.until(named, "its phase is Succeeded", succeeded)
	f.untilStatus(policy, "the missing permission is reported", func(s v1alpha1.PolicyStatus) bool {
		degraded := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDegraded)
		return degraded != nil && degraded.Reason == string(v1alpha1.ReasonJobsForbidden) && strings.Contains(degraded.Message, "pod "+f.namespace+"/job-1")
	})
	f.untouched(waiting)
	f.nothingWentWrong()
}

func TestOptOut(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	f.newPolicy("mesh")
	ignored := func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelIgnore: "true"} }
	byPod := f.newPod("by-pod", podtest.MainDone, ignored)
	var byNamespace *corev1.Pod
	quiet := f.newNamespace(map[string]string{v1alpha1.LabelIgnore: "true"})
	f.in(quiet, func() {
		f.newPolicy("mesh")
		byNamespace = f.newPod("by-namespace", podtest.MainDone)
	})
	running := f.newPod("later")
	f.until(running, "is marked", marked)
	f.until(f.newPod("other", podtest.MainDone), "its phase is Succeeded", succeeded)
	f.untouched(byPod)
	f.untouched(byNamespace)

	// It holds for a pod that is marked already, and ends with the label.
	f.reload(running)
	running.Labels[v1alpha1.LabelIgnore] = "true"
	f.update(running)
	f.until(running, "its mark ignores no exit codes", func(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationIgnoredExitCodes] == "" })
	f.in(quiet, func() { f.labelNamespace(v1alpha1.LabelIgnore, "") })
	f.until(byNamespace, "its phase is Succeeded", succeeded)
	f.nothingWentWrong()
}

func TestOptOutIsForbidden(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.Resolve.NoOptOut = true
	f.startOperator(options)
	f.newPolicy("mesh")
	pod := f.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelIgnore: "true"} })
	f.until(pod, "its phase is Succeeded", succeeded)
	f.nothingWentWrong()
}
