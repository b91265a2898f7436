//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/e2e/harness"
)

var kueueGroupVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

const kueueQueue = "queue"

// createQueue makes a queue of the namespace with a quota of CPU for the main container of one Job.
func createQueue(test *harness.Test) {
	test.Helper()
	name := test.Namespace
	resources := []any{map[string]any{"name": "cpu", "nominalQuota": "1m"}, map[string]any{"name": "memory", "nominalQuota": "1Gi"}}
	for _, object := range []*unstructured.Unstructured{
		harness.Object(kueueGroupVersion.WithKind("ResourceFlavor"), name, map[string]any{}),
		harness.Object(kueueGroupVersion.WithKind("ClusterQueue"), name, map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: test.Namespace}},
			"resourceGroups": []any{map[string]any{
				"coveredResources": []any{"cpu", "memory"},
				"flavors":          []any{map[string]any{"name": name, "resources": resources}},
			}},
		}),
	} {
		test.CreateForCluster(object)
	}
	test.Create(harness.Object(kueueGroupVersion.WithKind("LocalQueue"), kueueQueue, map[string]any{"clusterQueue": name}))
}

// queued returns a Job of one pod with a sidecar, which waits in the queue.
func queued(name string) *batchv1.Job {
	job := harness.Job(name, corev1.RestartPolicyNever, harness.Main(2))
	job.Spec.Template = injected(job.Spec.Template)
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": kueueQueue}
	return job
}

// A queue has room for one of two Jobs, so the second one starts when the first one is finished.
func TestToolsKueueJobs(t *testing.T) {
	harness.Shared(t)
	test := newPresetTool(t, "kueue", "kueue")
	createQueue(test)
	test.Create(queued("first"), queued("second"))
	for _, job := range []string{"first", "second"} {
		requireInjected(test, test.RequireCompleted(job))
	}
}
