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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// Workload is the pod templates of an object, or the pod that it is.
type Workload struct {
	Templates []WorkloadTemplate
	// Remarks say what of the object is not read, and why.
	Remarks []explain.Finding
}

// WorkloadTemplate is a pod template and its place in the object.
type WorkloadTemplate struct {
	explain.Pod
	Path string
	// Mistakes are PATH: MESSAGE.
	Mistakes []string
	// NoRestartPolicy is true if neither the template nor the kind says whether the pods finish.
	NoRestartPolicy bool
}

// place is a pod template as it is in an object.
type place struct {
	path string
	// template has the fields metadata and spec, or spec alone if the path leads to the pod's specification.
	template map[string]any
	bare     bool
	// job is the specification of the Job around the template, or nil.
	job map[string]any
	// mistakes are those that were corrected in fields of the kind that the template is made of.
	mistakes []string
	// restartPolicy is what the controller sets if the template has none.
	restartPolicy corev1.RestartPolicy
	// labels are those that the controller adds.
	labels map[string]string
	// deletion is by a field of the object that deletes finished Jobs at once, or nil.
	deletion *explain.Deletion
	// ended are the containers that the controller ends, or waits for alone.
	ended []string
}

// found is what a reader of a kind finds in an object.
type found struct {
	places  []place
	remarks []explain.Finding
}

// gap adds what of the object could not be read, once.
func (f *found) gap(format string, arguments ...any) *explain.Finding {
	gap := explain.NotChecked(fmt.Sprintf(format, arguments...))
	i := slices.IndexFunc(f.remarks, func(known explain.Finding) bool { return known.Message == gap.Message })
	if i < 0 {
		i, f.remarks = len(f.remarks), append(f.remarks, gap)
	}
	return &f.remarks[i]
}

// reader finds the pod templates of a kind in an object, which it may modify.
type reader func(object *unstructured.Unstructured) found

// readers are those of well-known kinds, in any version. That without a kind is for all other kinds of the group.
var readers = map[schema.GroupKind]reader{
	// https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: rule{
		path: "spec.replicatedJobs[].template.spec.template", inJob: true,
		objectLabel: "jobset.sigs.k8s.io/jobset-name", itemLabel: "jobset.sigs.k8s.io/replicatedjob-name",
	}.read,
	// https://www.kubeflow.org/docs/components/trainer/operator-guides/runtime/
	{Group: "trainer.kubeflow.org", Kind: "TrainingRuntime"}:        trainingRuntime.read,
	{Group: "trainer.kubeflow.org", Kind: "ClusterTrainingRuntime"}: trainingRuntime.read,
	// https://argo-workflows.readthedocs.io/en/latest/fields/
	{Group: "argoproj.io", Kind: "Workflow"}:                workflow("spec"),
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}:        workflow("spec"),
	{Group: "argoproj.io", Kind: "ClusterWorkflowTemplate"}: workflow("spec"),
	{Group: "argoproj.io", Kind: "CronWorkflow"}:            workflow("spec.workflowSpec"),
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
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: spark("spec.template"),
	// https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayjob-quick-start.html
	{Group: "ray.io", Kind: "RayJob"}:     rayJob("spec"),
	{Group: "ray.io", Kind: "RayCronJob"}: rayJob("spec.jobTemplate"),
	{Group: "ray.io"}:                     leaveAlone("left alone: a Ray cluster runs until it is deleted"),
	// https://github.com/kedacore/keda/blob/main/pkg/scaling/executor/scale_jobs.go, generateJobs
	{Group: "keda.sh", Kind: "ScaledJob"}: rule{path: "spec.jobTargetRef.template", inJob: true, objectLabel: "scaledjob.keda.sh/name"}.read,

	{Group: "tekton.dev"}:                                           leaveAlone("left alone: Tekton ends the sidecars of its pods"),
	{Group: "trainer.kubeflow.org", Kind: "TrainJob"}:               leaveAlone("its pods are those of its runtime, which is checked where its manifest is given"),
	{Group: "cloudsql.cloud.google.com", Kind: "AuthProxyWorkload"}: authProxy,
}

// rule says where a kind has its pod templates. Its controller sets restartPolicy OnFailure if a template has none.
type rule struct {
	// path leads to the templates. [] stands for every item of a list or a map.
	path string
	// inJob is true if the templates are in specifications of Jobs.
	inJob bool
	// itemPolicy is true if the controller sets the restartPolicy of the item in any case.
	itemPolicy bool
	// objectLabel and itemLabel have the names of the object and of the item, in the pods.
	objectLabel, itemLabel string
}

// trainingRuntime has a JobSet.
var trainingRuntime = rule{path: "spec.template.spec.replicatedJobs[].template.spec.template", inJob: true}

// replicas reads the replicas of a job of Kubeflow's training operator.
func replicas(field string) reader {
	return rule{path: "spec." + field + "[].template", itemPolicy: true, objectLabel: "training.kubeflow.org/job-name"}.read
}

func (r rule) read(object *unstructured.Unstructured) found {
	var result found
	for _, at := range locate(object.Object, r.path) {
		found := place{path: at.path, template: at.value, restartPolicy: corev1.RestartPolicyOnFailure, labels: map[string]string{}}
		if r.inJob {
			found.job = at.parent
		}
		if policy, spec := textAt(at.item, "restartPolicy"), mapAt(at.value, "spec"); r.itemPolicy && policy != "" && spec != nil {
			if policy == "ExitCode" { // of Kubeflow
				policy = string(corev1.RestartPolicyNever)
			}
			spec["restartPolicy"] = policy
		}
		if r.objectLabel != "" {
			found.labels[r.objectLabel] = object.GetName()
		}
		if r.itemLabel != "" {
			found.labels[r.itemLabel] = textAt(at.item, "name")
		}
		found.deletion = zeroLimit(func(field string) bool { return mapAt(object.Object, "spec")[field] == int64(0) })
		result.places = append(result.places, found)
	}
	return result
}

// located is an object in another one, its path, the object around it, and the item of a list or map that it is in.
type located struct {
	path                string
	value, parent, item map[string]any
}

// locate returns the objects at the path, in which [] stands for every item of a list or a map.
func locate(object map[string]any, path string) []located {
	all := []located{{value: object}}
	for field := range strings.SplitSeq(path, ".") {
		var next []located
		name, items := strings.CutSuffix(field, "[]")
		for _, at := range all {
			path, value := strings.TrimPrefix(at.path+"."+name, "."), mapAt(at.value, name)
			if !items {
				next = append(next, located{path, value, at.value, at.item})
				continue
			}
			for i, item := range listAt(at.value, name) {
				item, _ := item.(map[string]any)
				next = append(next, located{fmt.Sprintf("%s[%d]", path, i), item, at.value, item})
			}
			for _, key := range slices.Sorted(maps.Keys(value)) {
				next = append(next, located{path + "." + key, mapAt(value, key), at.value, mapAt(value, key)})
			}
		}
		all = next
	}
	return all
}

// ReadWorkload finds the pods of a manifest: one for a Pod, Job or CronJob, and none for another object that is decoded or has mistakes. Of
// any other object it finds the pod templates: by its kind if that is well known, otherwise by their shape. It corrects them as
// Files.Correct does.
func ReadWorkload(manifest Manifest) Workload {
	var pod explain.Pod
	switch object := manifest.Object.(type) {
	case *corev1.Pod:
		pod = explain.Pod{Input: podinput.Input{Pod: object}}
	case *batchv1.Job:
		pod = OfJob(object)
	case *batchv1.CronJob:
		pod = OfCronJob(object)
	case nil:
		if len(manifest.Mistakes) > 0 {
			return Workload{}
		}
		return readTemplates(manifest.Raw.DeepCopy())
	default:
		return Workload{}
	}
	return Workload{Templates: []WorkloadTemplate{{Pod: pod, Mistakes: manifest.Mistakes}}}
}

// readTemplates finds the pod templates of an object of a kind that is not decoded, and modifies it.
func readTemplates(object *unstructured.Unstructured) Workload {
	kind := object.GroupVersionKind().GroupKind()
	if MakesNoFinishingPods(kind) {
		return Workload{}
	}
	read := readers[kind]
	if read == nil {
		read = readers[schema.GroupKind{Group: kind.Group}]
	}
	if read == nil {
		read = byShape
	}
	got := read(object)
	var result Workload
	for i, at := range got.places {
		if i == maxTemplates {
			got.gap("only the first %d of its pod templates were checked", maxTemplates)
			break
		}
		template, err := at.read(object)
		if err != nil {
			got.gap("%s cannot be read: %s", at.path, err)
			continue
		}
		result.Templates = append(result.Templates, template)
	}
	result.Remarks = got.remarks
	return result
}

// read corrects and decodes the pod template.
func (p place) read(object *unstructured.Unstructured) (WorkloadTemplate, error) {
	c := corrector{mistakes: p.mistakes}
	specPath := p.path
	if !p.bare {
		specPath += ".spec"
		c.quote(p.path+".metadata", mapAt(p.template, "metadata"))
	}
	c.pod(specPath, mapAt(p.template, "spec"))
	fields := map[string]any{}
	maps.Copy(fields, p.job)
	fields["template"] = p.template
	var spec batchv1.JobSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return WorkloadTemplate{}, err
	}
	spec.Template.Spec.RestartPolicy = cmp.Or(spec.Template.Spec.RestartPolicy, p.restartPolicy)
	result := WorkloadTemplate{Pod: ofTemplate(object, object.GetKind(), spec), Path: p.path, Mistakes: c.mistakes}
	result.NoRestartPolicy = spec.Template.Spec.RestartPolicy == ""
	if p.job == nil {
		result.BackoffLimit = nil
	} else {
		maps.Copy(result.Pod.Pod.Labels, jobNameLabels(shownName(object)+ofController))
	}
	result.Deletion = cmp.Or(p.deletion, result.Deletion)
	maps.Copy(result.Pod.Pod.Labels, p.labels)
	result.EndedByOthers = p.ended
	return result, nil
}

// workflow reads the templates of Argo Workflows that have containers. Argo waits for the containers of a template and ends its
// sidecars. It ends any other container that has an annotation with the command to use.
func workflow(path string) reader {
	return func(object *unstructured.Unstructured) found {
		spec := mapAt(object.Object, strings.Split(path, ".")...)
		var result found
		agent, labels := spec["executorPlugins"] != nil, map[string]string{}
		if object.GetKind() == "Workflow" && object.GetName() != "" {
			labels["workflows.argoproj.io/workflow"] = object.GetName()
		}
		for _, at := range locate(object.Object, path+".templates[]") {
			if found, ok := workflowPod(path, spec, at); ok {
				found.labels = labels
				result.places = append(result.places, found)
				result.checkPatch(path+".podSpecPatch", spec, found.ended)
				if textAt(at.value, "podSpecPatch") != "" {
					result.checkPatch(at.path+".podSpecPatch", at.value, found.ended)
				} else {
					result.checkPatch(path+".templateDefaults.podSpecPatch", mapAt(spec, "templateDefaults"), found.ended)
				}
			}
			agent = agent || at.value["plugin"] != nil || at.value["http"] != nil
		}
		if agent {
			result.remarks = append(result.remarks, explain.LeftAlone(
				"left alone: its HTTP and plugin templates run in the agent pod of the workflow, with the sidecars of executor plugins. Argo deletes it at the end"))
		}
		return result
	}
}

// checkPatch names what a podSpecPatch of Argo changes that decisions depend on. The patch is not applied, but it may change the
// containers that the pod has.
func (f *found) checkPatch(path string, in map[string]any, containers []string) {
	text := textAt(in, "podSpecPatch")
	var patch corev1.PodSpec
	if text == "" {
		return
	}
	const hint = "lint a manifest of its pods"
	if err := yaml.Unmarshal([]byte(text), &patch); err != nil {
		f.gap("%s was not applied: it cannot be read before its parameters are replaced", path).Hint = hint
		return
	}
	for i := range patch.Containers {
		if name := patch.Containers[i].Name; !slices.Contains(containers, name) {
			f.gap("%s adds container %s, which was not checked: Argo ends it only if it has a shell", path, name).Hint =
				"move it to sidecars of the template, which Argo ends, or list it under sidecars in a SidecarTerminationPolicy"
		}
	}
	if patch.HostNetwork || patch.RestartPolicy != "" {
		f.gap("%s changes hostNetwork or restartPolicy, and was not applied", path).Hint = hint
	}
}

// killCommand starts the annotations with the command by which Argo ends a container.
const killCommand = "workflows.argoproj.io/kill-cmd-"

// workflowPod is the pod that Argo makes of a template of a workflow, and false if that has no containers.
func workflowPod(path string, spec map[string]any, at located) (place, bool) {
	template := at.value
	var containers []any
	for _, field := range []string{"container", "script"} {
		if container := mapAt(template, field); container != nil {
			container["name"] = "main"
			containers = append(containers, container)
		}
	}
	if containers = slices.Concat(containers, listAt(mapAt(template, "containerSet"), "containers")); len(containers) == 0 {
		return place{}, false
	}
	containers = slices.Concat(containers, listAt(template, "sidecars"))
	c := corrector{}
	c.quote(at.path, template)
	metadata := merged(&c,
		located{path: path + ".podMetadata", value: mapAt(spec, "podMetadata")},
		located{path: path + ".templateDefaults.metadata", value: mapAt(spec, "templateDefaults", "metadata")},
		located{path: at.path + ".metadata", value: mapAt(template, "metadata")})
	// Argo waits for the containers, and ends the sidecars and the container that it adds.
	ended := []string{"wait"}
	for _, container := range containers {
		container, _ := container.(map[string]any)
		ended = append(ended, textAt(container, "name"))
	}
	for key := range mapAt(metadata, "annotations") {
		if name, ok := strings.CutPrefix(key, killCommand); ok {
			ended = append(ended, name)
		}
	}
	return place{
		path: at.path, restartPolicy: corev1.RestartPolicyNever, ended: ended, mistakes: c.mistakes,
		template: map[string]any{"metadata": metadata, "spec": map[string]any{
			"containers": containers, "initContainers": listAt(template, "initContainers"), "hostNetwork": spec["hostNetwork"],
		}},
	}, true
}

// merged corrects and merges labels and annotations. Later ones take precedence.
func merged(c *corrector, all ...located) map[string]any {
	result := map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}}
	for _, at := range all {
		c.quote(at.path, at.value)
		for field, into := range result {
			maps.Copy(into.(map[string]any), mapAt(at.value, field))
		}
	}
	return result
}

// spark reads the driver's pod. The driver deletes its executors.
func spark(specPath string) reader {
	return func(object *unstructured.Unstructured) found {
		spec := mapAt(object.Object, strings.Split(specPath, ".")...)
		path, driver := specPath+".driver", mapAt(spec, "driver")
		base, c := mapAt(driver, "template"), corrector{}
		c.quote(path, driver)
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
		metadata := merged(&c, located{path: path + ".template.metadata", value: mapAt(base, "metadata")}, located{path: path, value: driver})
		return found{places: []place{{
			path: path, template: map[string]any{"metadata": metadata, "spec": pod}, mistakes: c.mistakes,
			restartPolicy: corev1.RestartPolicyNever, labels: map[string]string{"spark-role": "driver", "sparkoperator.k8s.io/app-name": object.GetName()},
		}}}
	}
}

// rayJob reads the template of the Job that submits the Ray job, or the one that KubeRay uses if there is none. The path leads to the
// specification of the RayJob.
func rayJob(path string) reader {
	return func(object *unstructured.Unstructured) found {
		spec := mapAt(object.Object, strings.Split(path, ".")...)
		if mode := textAt(spec, "submissionMode"); mode != "" && mode != "K8sJobMode" {
			return leaveAlone(fmt.Sprintf("left alone: with submissionMode %s no Job submits the Ray job", mode))(object)
		}
		template := mapAt(spec, "submitterPodTemplate")
		if template == nil {
			template = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "ray-job-submitter"}}}}
		}
		// KubeRay's default is 2 (createNewK8sJob).
		job := map[string]any{"backoffLimit": cmp.Or(mapAt(spec, "submitterConfig")["backoffLimit"], any(int64(2)))}
		var labels map[string]string
		if object.GetKind() == "RayJob" { // its Job has its name
			labels = jobNameLabels(shownName(object))
		}
		return found{places: []place{{
			path: path + ".submitterPodTemplate", template: template, job: job, restartPolicy: corev1.RestartPolicyNever, labels: labels,
		}}}
	}
}

// leaveAlone reads no pods, and says why.
func leaveAlone(remark string) reader {
	return func(*unstructured.Unstructured) found {
		return found{remarks: []explain.Finding{explain.LeftAlone(remark)}}
	}
}

// authProxy says which container the Cloud SQL operator adds to the workloads that the object selects. That operator annotates their
// templates.
func authProxy(object *unstructured.Unstructured) found {
	annotation := object.GroupVersionKind().Group + "/" + object.GetName()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Annotations: map[string]string{annotation: "yes"}}}
	added := sidecars.Predict(pod, &metav1.ObjectMeta{})
	if len(added) == 0 {
		return found{} // the object has no name
	}
	injector, container := added[0].Injector, added[0].Container
	if textAt(mapAt(object.Object, "spec"), "sidecarType") == "initContainer" {
		return leaveAlone(fmt.Sprintf("the %s adds %s as a native sidecar", injector, container))(object)
	}
	var result found
	result.gap("the %s adds container %s to the workloads that it selects; which these are was not checked", injector, container).Hint =
		"list it under sidecars in a SidecarTerminationPolicy, or set sidecarType: initContainer"
	return result
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
		w.gap("the search for pod templates stopped after %d values or at depth %d", maxValues, maxDepth)
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
