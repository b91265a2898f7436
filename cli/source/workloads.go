// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Workload is an object of a kind other than Pod, Job and CronJob, and its pod templates.
type Workload struct {
	Templates []WorkloadTemplate
	// References are the objects that have its other pod templates.
	References []Reference
	// Gaps say what of the object could not be read.
	Gaps []string
}

// WorkloadTemplate is a pod template and its place in the object.
type WorkloadTemplate struct {
	Template
	Path string
	// Mistakes are PATH: MESSAGE.
	Mistakes []string
}

// Reference is the kind and name of an object with pod templates.
type Reference struct {
	Kind schema.GroupKind
	Name string
}

func (r Reference) String() string { return r.Kind.Kind + " " + r.Name }

// place is a pod template as it is in an object.
type place struct {
	path string
	// template has the fields metadata and spec.
	template map[string]any
	// job is the specification of the Job around the template, or nil.
	job map[string]any
	// bare is true if the path leads to the pod's specification, and not to a template.
	bare bool
	// corrected is true if the template is a copy without mistakes, which are in mistakes.
	corrected bool
	mistakes  []string
	// restartPolicy is what the controller sets if the template has none. forced is what it sets in any case.
	restartPolicy, forced corev1.RestartPolicy
	// labels are those that the controller adds.
	labels map[string]string
	// ended are the containers that the controller ends, or waits for alone.
	ended []string
}

// found is what a reader of a kind finds in an object.
type found struct {
	places     []place
	references []Reference
	gaps       []string
}

// readers find the pod templates of well-known kinds, in any version.
var readers = map[schema.GroupKind]func(object *unstructured.Unstructured) found{
	// https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: func(object *unstructured.Unstructured) found {
		return found{places: replicatedJobs("spec", mapAt(object.Object, "spec"), map[string]string{"jobset.sigs.k8s.io/jobset-name": object.GetName()})}
	},
	// https://www.kubeflow.org/docs/components/trainer/operator-guides/runtime/
	{Group: "trainer.kubeflow.org", Kind: "TrainingRuntime"}:        trainingRuntime,
	{Group: "trainer.kubeflow.org", Kind: "ClusterTrainingRuntime"}: trainingRuntime,
	{Group: "trainer.kubeflow.org", Kind: "TrainJob"}:               trainJob,
	// https://argo-workflows.readthedocs.io/en/latest/fields/
	{Group: "argoproj.io", Kind: "Workflow"}:                workflow("spec"),
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}:        workflow("spec"),
	{Group: "argoproj.io", Kind: "ClusterWorkflowTemplate"}: workflow("spec"),
	{Group: "argoproj.io", Kind: "CronWorkflow"}:            workflow("spec", "workflowSpec"),
	// https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/
	{Group: "kubeflow.org", Kind: "PyTorchJob"}: replicas("pytorchReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "TFJob"}:      replicas("tfReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "MPIJob"}:     replicas("mpiReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}: replicas("xgbReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "PaddleJob"}:  replicas("paddleReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "JAXJob"}:     replicas("jaxReplicaSpecs"),
	{Group: "kubeflow.org", Kind: "MXJob"}:      replicas("mxReplicaSpecs"),
	// https://github.com/kubeflow/spark-operator/blob/master/docs/api-docs.md
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}:          spark("spec"),
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: spark("spec", "template"),
	// https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayjob-quick-start.html
	{Group: "ray.io", Kind: "RayJob"}: rayJob,
}

// ReadWorkload finds the pod templates of an object: by its kind if that is well known, otherwise by their shape. It corrects them
// as Manifests.Correct does.
func ReadWorkload(object *unstructured.Unstructured) Workload {
	read, known := readers[object.GroupVersionKind().GroupKind()]
	if !known {
		read = byShape
	}
	got := read(object)
	result := Workload{References: got.references, Gaps: got.gaps}
	for i, at := range got.places {
		if i == maxTemplates {
			result.Gaps = append(result.Gaps, fmt.Sprintf("only the first %d of its pod templates were checked", maxTemplates))
			break
		}
		template, err := at.read(object)
		if err != nil {
			result.Gaps = append(result.Gaps, fmt.Sprintf("%s cannot be read: %s", at.path, err))
			continue
		}
		result.Templates = append(result.Templates, template)
	}
	return result
}

// read corrects and decodes the pod template.
func (p place) read(object *unstructured.Unstructured) (WorkloadTemplate, error) {
	c := corrector{mistakes: p.mistakes}
	job, template := runtime.DeepCopyJSON(p.job), p.template
	if job != nil {
		template = mapAt(job, "template")
	} else if !p.corrected {
		template = runtime.DeepCopyJSON(template)
	}
	switch {
	case p.corrected:
	case p.bare:
		c.podSpec(p.path, mapAt(template, "spec"))
	default:
		c.template(p.path, template)
	}
	var spec batchv1.JobSpec
	var err error
	if job != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(job, &spec)
	} else {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(template, &spec.Template)
	}
	if err != nil {
		return WorkloadTemplate{}, err
	}
	spec.Template.Spec.RestartPolicy = cmp.Or(p.forced, spec.Template.Spec.RestartPolicy, p.restartPolicy)
	result := WorkloadTemplate{Template: templateOf(object, object.GetKind(), spec), Path: p.path, Mistakes: c.mistakes}
	if job == nil {
		result.BackoffLimit = nil
	}
	result.labels, result.EndedByOthers = p.labels, p.ended
	return result, nil
}

// replicatedJobs reads the Jobs of a JobSet. Its webhook sets restartPolicy OnFailure if a template has none.
func replicatedJobs(path string, spec map[string]any, labels map[string]string) []place {
	var all []place
	for i, replicated := range listAt(spec, "replicatedJobs") {
		replicated, _ := replicated.(map[string]any)
		added := maps.Clone(labels)
		if added != nil {
			added["jobset.sigs.k8s.io/replicatedjob-name"] = textAt(replicated, "name")
		}
		all = append(all, place{
			path: fmt.Sprintf("%s.replicatedJobs[%d].template.spec.template", path, i),
			job:  jobWithTemplate(mapAt(replicated, "template", "spec")), restartPolicy: corev1.RestartPolicyOnFailure, labels: added,
		})
	}
	return all
}

// jobWithTemplate returns the specification with a template, which may be missing.
func jobWithTemplate(spec map[string]any) map[string]any {
	if mapAt(spec, "template") != nil {
		return spec
	}
	spec = maps.Clone(spec)
	if spec == nil {
		spec = map[string]any{}
	}
	spec["template"] = map[string]any{}
	return spec
}

func trainingRuntime(object *unstructured.Unstructured) found {
	return found{places: replicatedJobs("spec.template.spec", mapAt(object.Object, "spec", "template", "spec"), nil)}
}

// trainJob finds the runtime, which has the pod templates.
func trainJob(object *unstructured.Unstructured) found {
	runtimeRef := mapAt(object.Object, "spec", "runtimeRef")
	return found{references: []Reference{{
		Kind: schema.GroupKind{Group: object.GroupVersionKind().Group, Kind: cmp.Or(textAt(runtimeRef, "kind"), "ClusterTrainingRuntime")},
		Name: textAt(runtimeRef, "name"),
	}}}
}

// workflow reads the templates of Argo Workflows that have containers. Argo waits for the containers of a template and ends its
// sidecars. It ends any other container that has an annotation with the command to use.
func workflow(fields ...string) func(object *unstructured.Unstructured) found {
	return func(object *unstructured.Unstructured) found {
		spec, path := mapAt(object.Object, fields...), strings.Join(fields, ".")
		var result found
		if name := textAt(mapAt(spec, "workflowTemplateRef"), "name"); name != "" {
			result.references = append(result.references, templateReference(mapAt(spec, "workflowTemplateRef"), name))
		}
		labels := map[string]string{}
		if object.GetKind() == "Workflow" && object.GetName() != "" {
			labels["workflows.argoproj.io/workflow"] = object.GetName()
		}
		for i, template := range listAt(spec, "templates") {
			if len(result.places) > maxTemplates {
				break
			}
			template, _ := template.(map[string]any)
			at := fmt.Sprintf("%s.templates[%d]", path, i)
			result.references = append(result.references, templateReferences(template)...)
			if found, ok := workflowPod(path, spec, at, template); ok {
				found.labels = labels
				result.places = append(result.places, found)
			}
			if template["podSpecPatch"] != nil {
				result.gaps = append(result.gaps, at+".podSpecPatch was not applied")
			}
		}
		return result
	}
}

// templateReferences finds the templates of other objects that the steps or tasks of a template use.
func templateReferences(template map[string]any) []Reference {
	var all []Reference
	add := func(item any) {
		step, _ := item.(map[string]any)
		reference := mapAt(step, "templateRef")
		if name := textAt(reference, "name"); name != "" {
			all = append(all, templateReference(reference, name))
		}
	}
	for _, group := range listAt(template, "steps") {
		group, _ := group.([]any)
		for _, step := range group {
			add(step)
		}
	}
	for _, task := range listAt(mapAt(template, "dag"), "tasks") {
		add(task)
	}
	return all
}

func templateReference(reference map[string]any, name string) Reference {
	kind := "WorkflowTemplate"
	if scoped, _ := reference["clusterScope"].(bool); scoped {
		kind = "ClusterWorkflowTemplate"
	}
	return Reference{Kind: schema.GroupKind{Group: "argoproj.io", Kind: kind}, Name: name}
}

// killCommand starts the annotations with the command by which Argo ends a container.
const killCommand = "workflows.argoproj.io/kill-cmd-"

// workflowPod is the pod that Argo makes of a template of a workflow, and false if that has no containers.
func workflowPod(specPath string, spec map[string]any, path string, template map[string]any) (place, bool) {
	template = runtime.DeepCopyJSON(template)
	c := corrector{}
	var containers []any
	for _, field := range []string{"container", "script"} {
		if container := mapAt(template, field); container != nil {
			c.environment(path+"."+field, container)
			container["name"] = "main"
			containers = append(containers, container)
		}
	}
	for _, list := range []struct {
		path       string
		containers []any
	}{
		{".containerSet.containers", listAt(mapAt(template, "containerSet"), "containers")},
		{".sidecars", listAt(template, "sidecars")},
		{".initContainers", listAt(template, "initContainers")},
	} {
		c.containers(path+list.path, list.containers)
	}
	containers = slices.Concat(containers, listAt(mapAt(template, "containerSet"), "containers"))
	if len(containers) == 0 {
		return place{}, false
	}
	containers = slices.Concat(containers, listAt(template, "sidecars"))
	// Argo waits for the containers, and ends the sidecars and the container that it adds.
	ended := []string{"wait"}
	for _, container := range containers {
		container, _ := container.(map[string]any)
		ended = append(ended, textAt(container, "name"))
	}
	metadata := mergeMetadata(&c,
		located{specPath + ".podMetadata", mapAt(spec, "podMetadata")},
		located{specPath + ".templateDefaults.metadata", mapAt(spec, "templateDefaults", "metadata")},
		located{path + ".metadata", mapAt(template, "metadata")})
	for key := range mapAt(metadata, "annotations") {
		if name, ok := strings.CutPrefix(key, killCommand); ok {
			ended = append(ended, name)
		}
	}
	return place{
		path: path, forced: corev1.RestartPolicyNever, ended: ended, corrected: true, mistakes: c.mistakes,
		template: map[string]any{"metadata": metadata, "spec": map[string]any{
			"containers": containers, "initContainers": listAt(template, "initContainers"), "hostNetwork": spec["hostNetwork"],
		}},
	}, true
}

// located is an object and its path.
type located struct {
	path   string
	object map[string]any
}

// mergeMetadata corrects and merges labels and annotations. Later ones take precedence.
func mergeMetadata(c *corrector, all ...located) map[string]any {
	merged := map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}}
	for _, from := range all {
		copied := runtime.DeepCopyJSON(from.object)
		c.metadata(from.path, copied)
		for field, into := range merged {
			maps.Copy(into.(map[string]any), mapAt(copied, field))
		}
	}
	return merged
}

// replicas reads the replicas of a job of Kubeflow's training operator. It sets the restartPolicy of a replica in its pods:
// ExitCode means Never, and OnFailure is the default.
func replicas(field string) func(object *unstructured.Unstructured) found {
	return func(object *unstructured.Unstructured) found {
		specs := mapAt(object.Object, "spec", field)
		var result found
		for _, name := range slices.Sorted(maps.Keys(specs)) {
			replica, _ := specs[name].(map[string]any)
			policy := corev1.RestartPolicy(textAt(replica, "restartPolicy"))
			if policy == "ExitCode" {
				policy = corev1.RestartPolicyNever
			}
			template := mapAt(replica, "template")
			if template == nil {
				template = map[string]any{}
			}
			result.places = append(result.places, place{
				path: fmt.Sprintf("spec.%s.%s.template", field, name), template: template,
				forced: policy, restartPolicy: corev1.RestartPolicyOnFailure, labels: map[string]string{"training.kubeflow.org/job-name": object.GetName()},
			})
		}
		return result
	}
}

// spark reads the driver's pod. The driver deletes its executors.
func spark(fields ...string) func(object *unstructured.Unstructured) found {
	return func(object *unstructured.Unstructured) found {
		spec := mapAt(object.Object, fields...)
		path := strings.Join(fields, ".") + ".driver"
		driver := runtime.DeepCopyJSON(mapAt(spec, "driver"))
		base := mapAt(driver, "template")
		c := corrector{}
		c.containers(path+".template.spec.containers", listAt(mapAt(base, "spec"), "containers"))
		c.containers(path+".template.spec.initContainers", listAt(mapAt(base, "spec"), "initContainers"))
		c.containers(path+".sidecars", listAt(driver, "sidecars"))
		c.containers(path+".initContainers", listAt(driver, "initContainers"))
		const name = "spark-kubernetes-driver"
		containers := slices.DeleteFunc(listAt(mapAt(base, "spec"), "containers"), func(container any) bool {
			named, _ := container.(map[string]any)
			return textAt(named, "name") == name
		})
		main := map[string]any{"name": name, "image": cmp.Or(textAt(driver, "image"), textAt(spec, "image"))}
		pod := map[string]any{
			"containers":     slices.Concat([]any{main}, containers, listAt(driver, "sidecars")),
			"initContainers": slices.Concat(listAt(mapAt(base, "spec"), "initContainers"), listAt(driver, "initContainers")),
			"hostNetwork":    driver["hostNetwork"],
		}
		metadata := mergeMetadata(&c, located{path + ".template.metadata", mapAt(base, "metadata")}, located{path, driver})
		return found{places: []place{{
			path: path, template: map[string]any{"metadata": metadata, "spec": pod}, corrected: true, mistakes: c.mistakes,
			forced: corev1.RestartPolicyNever, labels: map[string]string{"spark-role": "driver", "sparkoperator.k8s.io/app-name": object.GetName()},
		}}}
	}
}

// rayJob reads the template of the Job that submits the Ray job, or the one that KubeRay uses if there is none.
func rayJob(object *unstructured.Unstructured) found {
	template := mapAt(object.Object, "spec", "submitterPodTemplate")
	if template == nil {
		template = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "ray-job-submitter"}}}}
	}
	return found{places: []place{{path: "spec.submitterPodTemplate", template: template, restartPolicy: corev1.RestartPolicyNever}}}
}

// The bounds of the search in objects of unknown kinds.
const (
	maxDepth     = 50
	maxValues    = 100_000
	maxTemplates = 500
)

// byShape finds pod templates in an object of an unknown kind: a list containers of objects with a name and an image.
func byShape(object *unstructured.Unstructured) found {
	w := walker{}
	for _, field := range slices.Sorted(maps.Keys(object.Object)) {
		if field != "metadata" && field != "status" {
			w.visit(field, object.Object[field], nil)
		}
	}
	if w.stopped {
		w.gaps = append(w.gaps, fmt.Sprintf("the search for pod templates stopped after %d values or at depth %d", maxValues, maxDepth))
	}
	return w.found
}

// walker visits each value of an object once.
type walker struct {
	found
	path    []string // fields and indexes, to be joined
	values  int
	stopped bool
}

// visit visits the value in the field or at the index. The parent is the object whose field spec it is, or nil.
func (w *walker) visit(step string, value any, parent map[string]any) {
	if w.values++; w.values > maxValues || len(w.path) == maxDepth || len(w.places) > maxTemplates {
		w.stopped = true
		return
	}
	w.path = append(w.path, step)
	defer func() { w.path = w.path[:len(w.path)-1] }()
	switch value := value.(type) {
	case map[string]any:
		if isPodSpec(value) {
			w.add(value, parent)
			return
		}
		for _, field := range slices.Sorted(maps.Keys(value)) {
			var around map[string]any
			if field == "spec" {
				around = value
			}
			w.visit("."+field, value[field], around)
		}
	case []any:
		for i, item := range value {
			w.visit(fmt.Sprintf("[%d]", i), item, nil)
		}
	}
}

func (w *walker) add(spec, parent map[string]any) {
	at := place{path: strings.Join(w.path, ""), template: map[string]any{"spec": spec}, bare: parent == nil}
	if parent != nil {
		at.path, at.template["metadata"] = strings.TrimSuffix(at.path, ".spec"), parent["metadata"]
	}
	w.places = append(w.places, at)
}

// isPodSpec reports whether the object has containers with names and images.
func isPodSpec(object map[string]any) bool {
	containers := listAt(object, "containers")
	for _, container := range containers {
		container, _ := container.(map[string]any)
		if textAt(container, "name") == "" || textAt(container, "image") == "" {
			return false
		}
	}
	return len(containers) > 0
}

// groupsWithoutPods are groups of common definitions whose kinds create no pods that finish.
var groupsWithoutPods = []string{
	"acme.cert-manager.io", "bitnami.com", "cert-manager.io", "cilium.io", "crd.projectcalico.org", "external-secrets.io", "kyverno.io",
	"monitoring.coreos.com", "networking.istio.io", "policy.linkerd.io", "secrets-store.csi.x-k8s.io", "security.istio.io",
	"telemetry.istio.io", "traefik.io", "wgpolicyk8s.io",
}

// MakesNoFinishingPods reports whether objects of the kind are known to create no pods that finish: the kinds of Kubernetes except
// Jobs, and those of common definitions.
func MakesNoFinishingPods(kind schema.GroupKind) bool {
	if _, known := readers[kind]; known || kind.Group == batchv1.GroupName {
		return false
	}
	return !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io") || slices.Contains(groupsWithoutPods, kind.Group)
}
