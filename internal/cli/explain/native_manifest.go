// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// pathsOfPodSpec say where the manifest of a kind has the spec of its pods.
var pathsOfPodSpec = map[string][]string{
	"Pod":     {"spec"},
	"Job":     {"spec", "template", "spec"},
	"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
}

// containerIndexes returns the places of the containers in the manifest, in ascending order, and the number of its init
// containers, or -1 if it has no list of them.
func containerIndexes(manifest *unstructured.Unstructured, names []string) (indexes []int, inits int) {
	path := pathsOfPodSpec[manifest.GetKind()]
	containers, _, _ := unstructured.NestedSlice(manifest.Object, append(slices.Clone(path), "containers")...)
	for _, name := range names {
		indexes = append(indexes, slices.IndexFunc(containers, func(c any) bool {
			container, _ := c.(map[string]any)
			return container["name"] == name
		}))
	}
	existing, found, _ := unstructured.NestedSlice(manifest.Object, append(slices.Clone(path), "initContainers")...)
	if !found || existing == nil {
		return indexes, -1
	}
	return indexes, len(existing)
}

// withNativeSidecars returns a copy of the manifest in which the containers are native sidecars. They follow the existing init
// containers in the same order, as the admission policies place them.
func withNativeSidecars(manifest *unstructured.Unstructured, names []string) (*unstructured.Unstructured, error) {
	converted := manifest.DeepCopy()
	spec, _, err := unstructured.NestedMap(converted.Object, pathsOfPodSpec[manifest.GetKind()]...)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	regular, _ := spec["containers"].([]any)
	init, _ := spec["initContainers"].([]any)
	indexes, _ := containerIndexes(manifest, names)
	for _, i := range indexes {
		container := regular[i].(map[string]any)
		container["restartPolicy"] = string(corev1.ContainerRestartPolicyAlways)
		init = append(init, container)
	}
	for _, i := range slices.Backward(indexes) {
		regular = slices.Delete(regular, i, i+1)
	}
	spec["containers"], spec["initContainers"] = regular, init
	if err := unstructured.SetNestedMap(converted.Object, spec, pathsOfPodSpec[manifest.GetKind()]...); err != nil {
		return nil, fmt.Errorf("write %s %s: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	return converted, nil
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	From  string `json:"from,omitempty"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// nativePatch returns the patch that makes the containers native sidecars. It cannot be applied if the containers are at other
// places than in the manifest. A strategic merge patch would put them before the existing init containers.
func nativePatch(manifest *unstructured.Unstructured, names []string) []operation {
	spec := "/" + strings.Join(pathsOfPodSpec[manifest.GetKind()], "/")
	indexes, inits := containerIndexes(manifest, names)
	var patch []operation
	for i, index := range indexes {
		patch = append(patch, operation{Op: "test", Path: fmt.Sprintf("%s/containers/%d/name", spec, index), Value: names[i]})
	}
	if inits < 0 {
		patch, inits = append(patch, operation{Op: "add", Path: spec + "/initContainers", Value: []any{}}), 0
	}
	for _, index := range slices.Backward(indexes) {
		place := fmt.Sprintf("%s/initContainers/%d", spec, inits)
		patch = append(patch,
			operation{Op: "move", From: fmt.Sprintf("%s/containers/%d", spec, index), Path: place},
			operation{Op: "add", Path: place + "/restartPolicy", Value: corev1.ContainerRestartPolicyAlways})
	}
	return patch
}

// component is a component of kustomize.
type component struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Patches    []kustomizePatch `json:"patches"`
}

type kustomizePatch struct {
	Target target `json:"target"`
	Patch  string `json:"patch"`
}

// target selects one object. Name and namespace are regular expressions.
type target struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

func newComponent() component {
	return component{APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component", Patches: []kustomizePatch{}}
}

// add adds the patch that makes the containers of the manifest native sidecars.
func (c *component) add(manifest *unstructured.Unstructured, names []string) error {
	patch, err := yaml.Marshal(nativePatch(manifest, names))
	if err != nil {
		return fmt.Errorf("write the patch for %s %s: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	kind := manifest.GroupVersionKind()
	c.Patches = append(c.Patches, kustomizePatch{
		Target: target{kind.Group, kind.Version, kind.Kind, regexp.QuoteMeta(manifest.GetName()), regexp.QuoteMeta(manifest.GetNamespace())},
		Patch:  string(patch),
	})
	return nil
}

// manifestOfJob returns the manifest of a Job of the cluster, without what the API server and the Job controller added to it.
func manifestOfJob(job *batchv1.Job) (*unstructured.Unstructured, error) {
	spec := job.Spec.DeepCopy()
	labels := job.Labels
	if spec.ManualSelector == nil || !*spec.ManualSelector {
		spec.Selector = nil
		labels, spec.Template.Labels = withoutGenerated(labels), withoutGenerated(spec.Template.Labels)
	}
	return manifestOf(&batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: ownMetadata(job, labels), Spec: *spec,
	})
}

// manifestOfCronJob returns the manifest of a CronJob of the cluster.
func manifestOfCronJob(cron *batchv1.CronJob) (*unstructured.Unstructured, error) {
	return manifestOf(&batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"},
		ObjectMeta: ownMetadata(cron, cron.Labels), Spec: cron.Spec,
	})
}

func manifestOf(object runtime.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("write a manifest: %w", err)
	}
	delete(raw, "status")
	return &unstructured.Unstructured{Object: raw}, nil
}

// ownMetadata returns the metadata that authors write.
func ownMetadata(object metav1.Object, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), Labels: labels,
		Annotations: without(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation),
	}
}

// withoutGenerated returns the labels without those that the API server adds to Jobs and their templates.
func withoutGenerated(labels map[string]string) map[string]string {
	return without(labels, batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name")
}

func without(all map[string]string, keys ...string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if !slices.Contains(keys, key) {
			kept[key] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
