// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/scheme"
)

// randomPod returns a pod and the containers to convert: at least one, and not all.
func randomPod(random *rand.Rand) (*corev1.Pod, []string) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "some.pod"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
	}
	for i := range random.IntN(3) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("init-%d", i), Image: "app"})
	}
	var names []string
	for i := range 2 + random.IntN(4) {
		container := corev1.Container{Name: fmt.Sprintf("c-%d", i), Image: fmt.Sprintf("app:%d", i), Args: []string{"~", "a/b", "x: y"}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		if random.IntN(2) == 0 {
			names = append(names, container.Name)
		}
	}
	if len(names) == 0 || len(names) == len(pod.Spec.Containers) {
		names = []string{pod.Spec.Containers[random.IntN(len(pod.Spec.Containers))].Name}
	}
	return pod, names
}

// manifests returns a Pod, a Job and a CronJob with the pod's spec.
func manifests(t *testing.T, pod *corev1.Pod) []*unstructured.Unstructured {
	t.Helper()
	template := corev1.PodTemplateSpec{Spec: pod.Spec}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "batch"}, Spec: batchv1.JobSpec{Template: template}}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "cron", Namespace: "batch"}, Spec: batchv1.CronJobSpec{
		Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: job.Spec},
	}}
	var all []*unstructured.Unstructured
	for _, read := range []func() (*unstructured.Unstructured, error){
		func() (*unstructured.Unstructured, error) { return manifestOf(pod) },
		func() (*unstructured.Unstructured, error) { return manifestOfJob(job) },
		func() (*unstructured.Unstructured, error) { return manifestOfCronJob(cron) },
	} {
		manifest, err := read()
		if err != nil {
			t.Fatal(err)
		}
		// A field that this program does not know.
		if err := unstructured.SetNestedField(manifest.Object, "kept", append(slices.Clone(pathsOfPodSpec[manifest.GetKind()]), "fieldOfTheFuture")...); err != nil {
			t.Fatal(err)
		}
		all = append(all, manifest)
	}
	return all
}

// podSpecOf returns the spec of the pods of a manifest.
func podSpecOf(t *testing.T, manifest *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	raw, _, err := unstructured.NestedMap(manifest.Object, pathsOfPodSpec[manifest.GetKind()]...)
	if err != nil {
		t.Fatal(err)
	}
	if raw["fieldOfTheFuture"] != "kept" {
		t.Errorf("an unknown field is lost: %v", raw)
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// build builds a kustomization with the manifests and the component, and returns the objects by kind.
func build(t *testing.T, objects []*unstructured.Unstructured, component any) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	disk := filesys.MakeFsInMemory()
	var resources bytes.Buffer
	for _, object := range objects {
		resources.WriteString("---\n")
		resources.Write(marshal(t, object.Object))
	}
	for name, content := range map[string][]byte{
		"base/resources.yaml":       resources.Bytes(),
		"base/kustomization.yaml":   []byte("resources: [resources.yaml]\n"),
		"native/kustomization.yaml": marshal(t, component),
		"kustomization.yaml":        []byte("resources: [base]\ncomponents: [native]\n"),
	} {
		if err := disk.WriteFile("/"+name, content); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/")
	if err != nil {
		return nil, err
	}
	byKind := map[string]*unstructured.Unstructured{}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		byKind[resource.GetKind()] = unmarshal(t, text)
	}
	return byKind, nil
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unmarshal(t *testing.T, text []byte) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// The manifests and the patches must change pods exactly as the admission policies do, except for the annotation.
func TestManifestsAndPatchesConvertAsAdmissionDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		pod, names := randomPod(random)
		var decision native.Decision
		for _, name := range names {
			decision.Conversions = append(decision.Conversions, native.Conversion{Container: name, By: native.Environment})
		}
		want := native.Apply(pod, decision).Spec
		objects, patches := manifests(t, pod), newComponent()
		for _, manifest := range objects {
			before := manifest.DeepCopy()
			converted, err := withNativeSidecars(manifest, names)
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(want, podSpecOf(t, converted)); difference != "" {
				t.Fatalf("converted %s (-want +got):\n%s", manifest.GetKind(), difference)
			}
			if err := patches.add(manifest, names); err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(before, manifest); difference != "" {
				t.Fatalf("the manifest was modified:\n%s", difference)
			}
		}
		built, err := build(t, objects, patches)
		if err != nil {
			t.Fatal(err)
		}
		for kind, object := range built {
			if difference := cmp.Diff(want, podSpecOf(t, object)); difference != "" {
				t.Fatalf("patched %s (-want +got):\n%s", kind, difference)
			}
		}
		if len(built) != len(objects) {
			t.Fatalf("built %d of %d objects", len(built), len(objects))
		}
	}
}

func TestPatchFailsIfContainersHaveMoved(t *testing.T) {
	pod, _ := randomPod(rand.New(rand.NewPCG(3, 4)))
	objects, patches := manifests(t, pod), newComponent()
	if err := patches.add(objects[1], []string{pod.Spec.Containers[0].Name}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(pod.Spec.Containers)
	moved := manifests(t, pod)
	if _, err := build(t, moved, patches); err == nil || !strings.Contains(err.Error(), "testing value") {
		t.Errorf("got error %v", err)
	}
}

func TestComponentWithoutPatches(t *testing.T) {
	pod, _ := randomPod(rand.New(rand.NewPCG(5, 6)))
	if _, err := build(t, manifests(t, pod), newComponent()); err != nil {
		t.Error(err)
	}
}

func TestManifestsOfTheClusterHaveNoGeneratedFields(t *testing.T) {
	generated := map[string]string{
		"app": "etl", "controller-uid": "1", "job-name": "job", batchv1.ControllerUidLabel: "1", batchv1.JobNameLabel: "job",
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: generated},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app"}}},
	}
	metadata := metav1.ObjectMeta{
		Namespace: "batch", Name: "job", UID: "1", ResourceVersion: "2", Generation: 3, CreationTimestamp: metav1.Now(), Labels: generated,
		Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "1"}}
	job := &batchv1.Job{ObjectMeta: metadata, Spec: batchv1.JobSpec{Selector: selector, Template: template}, Status: batchv1.JobStatus{Active: 1}}
	before := job.DeepCopy()
	got, err := manifestOfJob(job)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: batch/v1
kind: Job
metadata:
  labels:
    app: etl
  name: job
  namespace: batch
spec:
  template:
    metadata:
      labels:
        app: etl
    spec:
      containers:
      - image: app
        name: main
        resources: {}
`
	if difference := cmp.Diff(want, string(marshal(t, got.Object))); difference != "" {
		t.Errorf("Job (-want +got):\n%s", difference)
	}
	if difference := cmp.Diff(before, job); difference != "" {
		t.Errorf("the Job was modified:\n%s", difference)
	}
	job.Spec.ManualSelector = ptr.To(true)
	if got, err = manifestOfJob(job); err != nil {
		t.Fatal(err)
	}
	if labels, _, _ := unstructured.NestedStringMap(got.Object, "spec", "selector", "matchLabels"); labels[batchv1.ControllerUidLabel] != "1" || got.GetLabels()["job-name"] != "job" {
		t.Errorf("a selector of the author is lost: %v", got.Object)
	}
}

// newNamespaceOfWorkloads returns a client of namespace batch with a policy that asks for the conversion of proxy, and workloads.
func newNamespaceOfWorkloads(t *testing.T) client.Client {
	t.Helper()
	types, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "mesh"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.NativeConversion = v1alpha1.NativeConversionPreferred
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "app"}, {Name: "proxy", Image: "app"}},
	}}
	named := func(name, owner string) metav1.ObjectMeta {
		metadata := metav1.ObjectMeta{Namespace: "batch", Name: name, UID: "uid"}
		if owner != "" {
			metadata.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "owner", UID: "owner", Controller: ptr.To(true)}}
		}
		return metadata
	}
	job := func(name, owner string, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: named(name, owner), Spec: batchv1.JobSpec{Template: template}, Status: batchv1.JobStatus{Conditions: conditions}}
	}
	pod := func(name, owner string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: named(name, owner), Spec: template.Spec}
	}
	elsewhere := job("elsewhere", "")
	elsewhere.Namespace = "other"
	return fake.NewClientBuilder().WithScheme(types).WithObjects(
		policy, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}, elsewhere,
		&batchv1.CronJob{ObjectMeta: named("cron", ""), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}},
		job("job", ""), job("of-cron", "CronJob"), job("of-set", "JobSet"),
		job("finished", "", batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}),
		pod("bare", ""), pod("of-job", "Job"), pod("of-workflow", "Workflow"),
	).WithInterceptorFuncs(interceptor.Funcs{
		// The client does not support the field selector of unfinished pods, and every pod is unfinished.
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			var all client.ListOptions
			all.ApplyOptions(options)
			all.FieldSelector = nil
			return c.List(ctx, list, &all)
		},
	}).Build()
}

func TestNativeOfNamespace(t *testing.T) {
	c := newNamespaceOfWorkloads(t)
	for format, want := range map[output.Format][]string{
		output.FormatTable: {
			"CronJob batch/cron", "Job batch/job", "Job batch/of-set", "Pod batch/bare", "Pod batch/of-workflow",
			"Checked 5 workloads: 5 with native sidecars after conversion",
		},
		output.FormatYAML: {
			"kind: CronJob", "name: cron", "kind: Job", "name: job", "restartPolicy: Always",
			"note: not written: Job batch/of-set", "note: not written: Pod batch/bare", "note: not written: Pod batch/of-workflow",
		},
		formatKustomize: {"kind: CronJob", "kind: Job", "note: not written: Job batch/of-set", "note: not written: Pod batch/bare"},
	} {
		t.Run(string(format), func(t *testing.T) {
			l := &live{Live: &source.Live{Client: c}, source: &source.Source{Reader: c}, namespace: "batch"}
			r := &nativeResult{}
			if err := l.native(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			r.summarize()
			var out bytes.Buffer
			command := &cobra.Command{}
			command.SetOut(&out)
			command.SetErr(&out)
			if err := r.write(command, format); err != nil {
				t.Fatal(err)
			}
			for _, part := range want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("output lacks %q", part)
				}
			}
			for _, part := range []string{"elsewhere", "of-cron", "of-job", "finished"} {
				if strings.Contains(out.String(), part) {
					t.Errorf("output has %q", part)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}
