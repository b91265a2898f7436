//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Scripts of main containers.
const (
	worksThenSucceeds = "sleep 1; echo done"
	worksThenFails    = "sleep 1; echo done; exit 3"
)

// tool is the pods that a tool makes, in a namespace that the tool's preset selects.
type tool struct {
	*harness.Test
	objects []client.Object
}

// newTool reads config/samples/tools/NAME.yaml, and enforces config/presets/NAME if there is one.
func newTool(t *testing.T, name string) *tool {
	t.Helper()
	result := &tool{Test: harness.New(t)}
	result.read(name)
	enforcePreset(result.Test, name)
	return result
}

// onlyNamespace selects the test's namespace.
func onlyNamespace(test *harness.Test) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: test.Namespace}}
}

// enforcePreset creates the policy of config/presets/NAME, if there is one, enforced in the test's namespace.
func enforcePreset(test *harness.Test, name string) {
	test.Helper()
	content, err := os.ReadFile(filepath.Join(test.Repository, "config", "presets", name, "policy.yaml"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{}
	if err := errors.Join(err, yaml.UnmarshalStrict(content, policy)); err != nil {
		test.Fatal(err)
	}
	policy.Name, policy.Spec.Enforcement, policy.Spec.NamespaceSelector = test.Namespace, v1alpha1.EnforcementEnforce, onlyNamespace(test)
	test.CreateForCluster(policy)
}

func (t *tool) read(name string) {
	t.Helper()
	file := filepath.Join(t.Repository, "config", "samples", "tools", name+".yaml")
	found := resource.NewLocalBuilder().WithScheme(scheme.Scheme, scheme.Scheme.PrioritizedVersionsAllGroups()...).
		FilenameParam(false, &resource.FilenameOptions{Filenames: []string{file}}).Do()
	if err := found.Visit(func(info *resource.Info, err error) error {
		if err == nil {
			t.objects = append(t.objects, info.Object.(client.Object))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// create creates the object of that name with stand-ins for what the cluster does not have. The scripts are those of containers by
// name: others run until SIGTERM. The object keeps everything else.
func (t *tool) create(name string, scripts map[string]string, changes ...func(client.Object)) client.Object {
	t.Helper()
	for _, object := range t.objects {
		if object.GetName() != name {
			continue
		}
		object = object.DeepCopyObject().(client.Object)
		switch typed := object.(type) {
		case *corev1.Pod:
			t.standIn(&typed.Spec, scripts)
		case *batchv1.Job:
			t.standIn(&typed.Spec.Template.Spec, scripts)
		}
		for _, change := range changes {
			change(object)
		}
		t.Create(object)
		return object
	}
	t.Fatalf("There is no object %s", name)
	return nil
}

// standIn replaces images, commands, resources and claims of volumes, and creates what the pod refers to. Init containers succeed.
func (t *tool) standIn(pod *corev1.PodSpec, scripts map[string]string) {
	t.Helper()
	pod.TerminationGracePeriodSeconds = ptr.To[int64](harness.GracePeriodSeconds)
	if pod.ServiceAccountName != "" {
		t.ensure(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: pod.ServiceAccountName}})
	}
	for i := range pod.Volumes {
		switch volume := &pod.Volumes[i]; {
		case volume.ConfigMap != nil:
			data := map[string]string{}
			for _, item := range volume.ConfigMap.Items {
				data[item.Key] = ""
			}
			t.ensure(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: volume.ConfigMap.Name}, Data: data})
		case volume.PersistentVolumeClaim != nil:
			volume.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
	replace := func(container *corev1.Container, script string) {
		with := harness.Container(container.Name, script)
		container.Image, container.ImagePullPolicy, container.Resources = with.Image, with.ImagePullPolicy, with.Resources
		container.Command, container.Args = with.Command, nil
		for _, from := range container.EnvFrom {
			t.ensure(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: from.SecretRef.Name}})
		}
	}
	for i := range pod.InitContainers {
		replace(&pod.InitContainers[i], "true")
	}
	for i := range pod.Containers {
		script, ok := scripts[pod.Containers[i].Name]
		if !ok {
			script = harness.ExitsZeroOnTerm
		}
		replace(&pod.Containers[i], script)
	}
}

// ensure creates the object unless it exists.
func (t *tool) ensure(object client.Object) {
	t.Helper()
	object.SetNamespace(t.Namespace)
	if err := t.Client.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// requireOutcome requires that the pod is finished without a running process, and what tools read: its phase, the exit code of the
// main container, and its log.
func (t *tool) requireOutcome(owner, container string, phase corev1.PodPhase, exitCode int32) {
	t.Helper()
	record := t.RequireFinished(owner)
	if record.Pod.Status.Phase != phase {
		t.Errorf("Pod %s is %s, want %s", record.Pod.Name, record.Pod.Status.Phase, phase)
	}
	requireRun(t.Test, record, container, exitCode, 0)
	if log := kubectl(t.Test, "logs", "--namespace="+t.Namespace, record.Pod.Name, "--container="+container); log != "done\n" {
		t.Errorf("The log of container %s of pod %s is %q", container, record.Pod.Name, log)
	}
}

// requireLeftAlone requires that the operator has ended no container of the pod, and that exactly these containers run.
func (t *tool) requireLeftAlone(name string, running ...string) {
	t.Helper()
	record := t.RecordOf(name)
	requireNotEnded(t.Test, record)
	if got := record.Running(); !slices.Equal(got, running) {
		t.Errorf("Containers %v of pod %s run, want %v", got, name, running)
	}
}

// Airflow reads the result of a task from its sidecar after the base container has ended, and interrupts the sidecar. The failed task
// shows that the operator had time to act before.
func TestToolAirflow(t *testing.T) {
	harness.Shared(t)
	test := newTool(t, "airflow")
	const task, failed, worker = "load-orders-k2x8v1qd", "check-orders-p7d3m9zt", "orders-report-9fd0c3hb"
	test.create(task, map[string]string{
		"base":                 `echo '{"orders": 3}' > /airflow/xcom/return.json; echo done`,
		"airflow-xcom-sidecar": `trap "exit 0" INT; while true; do sleep 1; done;`,
	})
	test.WaitForEnd(task, "base")
	test.create(failed, map[string]string{"base": worksThenFails})
	test.create(worker, map[string]string{"base": worksThenSucceeds})
	test.requireOutcome(failed, "base", corev1.PodFailed, 3)
	test.requireOutcome(worker, "base", corev1.PodSucceeded, 0)

	test.requireLeftAlone(task, "airflow-xcom-sidecar", "istio-proxy")
	if result := kubectl(test.Test, "exec", "--namespace="+test.Namespace, task, "--container=airflow-xcom-sidecar", "--",
		"/bin/sh", "-c", "cat /airflow/xcom/return.json; kill -2 1"); strings.TrimSpace(result) != `{"orders": 3}` {
		t.Errorf("The result of the task is %q", result)
	}
	test.requireOutcome(task, "base", corev1.PodSucceeded, 0)
}

// The driver owns the executors, and deletes them when it ends by itself. An executor that dies stays until then.
func TestToolSpark(t *testing.T) {
	harness.Shared(t)
	test := newTool(t, "spark")
	const driver, executor = "pi-8d1f0c9a7b6e5d4c-driver", "pi-8d1f0c9a7b6e5d4c-exec-1"
	running := test.create(driver, map[string]string{"spark-kubernetes-driver": worksThenSucceeds})
	test.requireOutcome(driver, "spark-kubernetes-driver", corev1.PodSucceeded, 0)
	test.create(executor, map[string]string{"spark-kubernetes-executor": worksThenFails}, func(pod client.Object) {
		pod.GetOwnerReferences()[0].UID = running.GetUID()
	})
	test.create(driver, map[string]string{"spark-kubernetes-driver": worksThenFails}, func(pod client.Object) { pod.SetName("failed-driver") })
	test.requireOutcome("failed-driver", "spark-kubernetes-driver", corev1.PodFailed, 3)
	test.requireOutcome(executor, "spark-kubernetes-executor", corev1.PodFailed, 3)
}

func TestToolGitHubARC(t *testing.T) {
	harness.Shared(t)
	test := newTool(t, "github-arc")
	const step, workflow = "arc-runner-x7f2k-runner-9q4zd-step-1c0ffee0", "arc-runner-x7f2k-runner-9q4zd-workflow"
	test.create(workflow, nil)
	test.WaitForRunning(workflow)
	test.create(step, map[string]string{"job": worksThenSucceeds})
	test.create(step, map[string]string{"job": worksThenFails}, func(job client.Object) { job.SetName("failed-step") })
	test.WaitForComplete(step)
	test.requireOutcome(step, "job", corev1.PodSucceeded, 0)
	test.WaitForFailed("failed-step")
	test.requireOutcome("failed-step", "job", corev1.PodFailed, 3)
	test.requireLeftAlone(workflow, "fluent-bit", "job", "redis")
}

// Tests of tools that make pods are named TestTools…. make e2e-tools runs them on a local cluster that has the tools, and other runs
// skip them. OpenKruise's webhook injects the sidecar, and no tool knows of it.

// injectedLabel is a label of pods that get a sidecar.
const injectedLabel = "sidecar"

// newPresetTool is newInjectedTool with a sidecar whose name presets list.
func newPresetTool(t *testing.T, preset, addon string) *harness.Test {
	t.Helper()
	return newInjectedTool(t, preset, injectedLabel, harness.Container("istio-proxy", harness.ExitsSevenOnTerm), addon)
}

// newInjectedTool returns a test with the preset as the only policy. Pods with the label get the sidecar.
func newInjectedTool(t *testing.T, preset, label string, sidecar corev1.Container, addon string) *harness.Test {
	t.Helper()
	test := harness.New(t)
	test.RequireAddon(addon)
	injectWhereLabelled(test, label, sidecar)
	enforcePreset(test, preset)
	return test
}

// permitPods lets the programs in the namespace's pods do what the rules say.
func permitPods(test *harness.Test, rules ...rbacv1.PolicyRule) {
	test.Helper()
	const role = "pods"
	test.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: test.Namespace}},
	})
}

// createManifest creates the object of the manifest.
func createManifest(test *harness.Test, manifest string) *unstructured.Unstructured {
	test.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), object); err != nil {
		test.Fatal(err)
	}
	test.Create(object)
	return object
}

// injectWhereLabelled has OpenKruise inject the container into the pods of the namespace that have the label, and waits until it does.
func injectWhereLabelled(test *harness.Test, label string, sidecar corev1.Container) {
	test.Helper()
	container := harness.ToMap(&sidecar)
	container["podInjectPolicy"] = "BeforeAppContainer"
	container["shareVolumePolicy"] = map[string]any{"type": "disabled"}
	test.CreateForCluster(harness.Kruise("SidecarSet", test.Namespace, map[string]any{
		"namespace":      test.Namespace,
		"selector":       map[string]any{"matchExpressions": []any{map[string]any{"key": label, "operator": "Exists"}}},
		"updateStrategy": map[string]any{"type": "NotUpdate"},
		"containers":     []any{container},
	}))
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(0))
	test.Eventually("new pods to get a sidecar", time.Minute, func(ctx context.Context) error {
		pod := harness.Pod("dry-run", map[string]string{label: "any"}, *template.DeepCopy())
		pod.Namespace = test.Namespace
		if err := test.Client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) == len(template.Spec.Containers) {
			return errors.New("nothing injects it")
		}
		return nil
	})
}

// injected returns a template whose pods get a sidecar.
func injected(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Labels = map[string]string{injectedLabel: "injected"}
	return template
}
