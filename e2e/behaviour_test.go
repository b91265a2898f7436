//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// Nodes without OpenKruise's daemon: a virtual node, where Auto uses mode Image, and one with a kubelet and the label of AWS
// Fargate, where Auto uses mode PodPhase.
const (
	virtualNode = "virtual-1"
	fargateNode = "fargate-1"
)

const missingImage = "localhost/not-there:1"

// jobRestartPolicies are the restart policies that Kubernetes allows for pods of Jobs.
var jobRestartPolicies = []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}

// bothVariables declare mode CRR on real nodes and mode Image on virtual nodes.
var bothVariables = []string{v1alpha1.EnvTerminate, "true", v1alpha1.EnvTerminateWithImage, harness.QuickExitImage}

// behaviour is a Job, the policy that declares its sidecars unless environment variables do, and what must become of it. Outcomes
// that depend on modes, restart policies and exit codes alone are cells of TestOutcomeMatrix.
type behaviour struct {
	name    string
	policy  *v1alpha1.SidecarTerminationPolicy
	job     *batchv1.Job
	require requirement
}

// requirement requires something of the Job named job.
type requirement func(test *harness.Test)

// runBehaviours runs each behaviour in a namespace of its own.
func runBehaviours(t *testing.T, all []behaviour) {
	t.Helper()
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			if b.policy != nil {
				test.Create(b.policy)
			}
			test.Create(b.job)
			b.require(test)
		})
	}
}

func TestBehaviours(t *testing.T) {
	harness.Shared(t)
	restartPolicies := jobRestartPolicies
	if !testenv.Long() {
		restartPolicies = restartPolicies[:1]
	}
	runBehaviours(t, slices.Concat(
		modeBehaviours(restartPolicies), envBehaviours(), nodeBehaviours(restartPolicies), jobBehaviours(), stuckBehaviours(),
	))
}

// modeBehaviours are the modes of policies on a node with OpenKruise.
func modeBehaviours(restartPolicies []corev1.RestartPolicy) []behaviour {
	var all []behaviour
	for _, restartPolicy := range restartPolicies {
		name, polite := string(restartPolicy)+"/", jobOf(restartPolicy, harness.ExitsZeroOnTerm)
		all = append(all,
			behaviour{name + "CRR, Respect", with(v1alpha1.ModeCRR, respect), polite.DeepCopy(), endedByCRR},
			behaviour{name + "CRR, Ignore", with(v1alpha1.ModeCRR), polite.DeepCopy(), endedByCRR},
			behaviour{name + "Auto, Respect", with(v1alpha1.ModeAuto, respect), polite.DeepCopy(), endedByCRR},
			behaviour{name + "three modes", threeModes(), harness.Job("job", restartPolicy,
				harness.Container("by-crr", harness.ExitsZeroOnTerm), harness.Container("by-image", harness.ExitsZeroOnTerm),
				harness.Container("by-phase", harness.ExitsSevenOnTerm), harness.Main(2)), endedByCRRAndImage},
		)
	}
	// The kubelet runs preStop, and waits for the grace period.
	slow := jobOf(corev1.RestartPolicyNever, "trap '[ -e /tmp/stopping ] && sleep 3 && exit 5; exit 6' TERM; sleep 3600 & wait; wait")
	slow.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/tmp/stopping"}}}}
	all = append(all, behaviour{"PodPhase, preStop", with(v1alpha1.ModePodPhase), slow, endedByPhase(5)})
	for name, c := range map[string]struct{ respected, ignored string }{
		"ignored fails":     {harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm},
		"ignored is killed": {harness.ExitsZeroOnTerm, harness.IgnoresTerm},
		"respected fails":   {harness.ExitsSevenOnTerm, harness.ExitsZeroOnTerm},
	} {
		policy := harness.Policy(v1alpha1.ModeCRR, "respected", "ignored")
		policy.Spec.Sidecars[0].ExitCodePolicy = v1alpha1.ExitCodePolicyRespect
		job := harness.Job("job", corev1.RestartPolicyNever,
			harness.Container("respected", c.respected), harness.Container("ignored", c.ignored), harness.Main(2))
		job.Spec.BackoffLimit = ptr.To[int32](0)
		require := completed
		if c.respected != harness.ExitsZeroOnTerm {
			require = failedOnce
		}
		all = append(all, behaviour{"Respect and Ignore in one pod, " + name, policy, job, require})
	}
	return all
}

// envBehaviours are sidecars that environment variables declare, on a node with OpenKruise.
func envBehaviours() []behaviour {
	byPolicyAndEnv := harness.Job("job", corev1.RestartPolicyNever, harness.Container("by-crr", harness.ExitsZeroOnTerm), harness.Main(2),
		harness.WithEnv(harness.Container("by-image", harness.ExitsZeroOnTerm), v1alpha1.EnvTerminateWithImage, harness.QuickExitImage))
	byCRR := harness.Policy(v1alpha1.ModeCRR, "by-crr")
	byCRR.Spec.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect
	respected, terminate := []string{v1alpha1.EnvIgnoreExitCode, "false"}, []string{v1alpha1.EnvTerminate, "true"}
	ignored := append([]string{v1alpha1.EnvIgnoreExitCode, "true"}, terminate...)
	all := []behaviour{
		{"env/CRR, Respect", nil, jobWithEnv(corev1.RestartPolicyNever, append(respected, terminate...)...), endedByCRR},
		{"env/CRR, Respect, upper case", nil, jobWithEnv(corev1.RestartPolicyOnFailure, append(respected, v1alpha1.EnvTerminate, "TRUE")...), endedByCRR},
		{"env/both variables", nil, jobWithEnv(corev1.RestartPolicyNever, append(respected, bothVariables...)...), endedByCRR},
		// OpenKruise ignores this variable alone on real nodes.
		{"env/Image, Never", nil, jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage), endedByImage},
		{"env/Image, OnFailure", nil, jobWithEnv(corev1.RestartPolicyOnFailure, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage), endedByImage},
		{
			"env/image of the policy first", with(v1alpha1.ModeImage),
			jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminateWithImage, missingImage), endedByImage,
		},
		{"env/beside a policy", byCRR, byPolicyAndEnv, endedByCRRAndImage},
	}
	// The cases of docs/comparison.md for OpenKruise's SidecarTerminator.
	for name, c := range map[string]struct {
		restartPolicy corev1.RestartPolicy
		script        string
		env           []string
	}{
		"Never, exits 0":                {corev1.RestartPolicyNever, harness.ExitsZeroOnTerm, terminate},
		"Never, exits 7":                {corev1.RestartPolicyNever, harness.ExitsSevenOnTerm, terminate},
		"Never, exits 7, ignored":       {corev1.RestartPolicyNever, harness.ExitsSevenOnTerm, ignored},
		"OnFailure, exits 7":            {corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm, terminate},
		"OnFailure, exits 7, ignored":   {corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm, ignored},
		"Never, ignores TERM":           {corev1.RestartPolicyNever, harness.IgnoresTerm, terminate},
		"Never, image cannot be pulled": {corev1.RestartPolicyNever, "", terminate},
	} {
		sidecar := harness.WithEnv(harness.Sidecar(c.script), c.env...)
		if c.script == "" {
			sidecar.Image, sidecar.ImagePullPolicy = missingImage, corev1.PullNever
		}
		job := harness.Job("job", c.restartPolicy, sidecar, harness.Main(3))
		job.Spec.BackoffLimit = ptr.To[int32](1)
		all = append(all, behaviour{"env/" + name, nil, job, completed})
	}
	return all
}

// nodeBehaviours are nodes without OpenKruise's daemon, which have the modes of their type.
func nodeBehaviours(restartPolicies []corev1.RestartPolicy) []behaviour {
	var all []behaviour
	for _, restartPolicy := range restartPolicies {
		for node, byNode := range map[string]func(exitCode int32) requirement{
			virtualNode: func(int32) requirement { return endedByImage },
			fargateNode: endedByPhase,
		} {
			name := fmt.Sprintf("%s/%s/", node, restartPolicy)
			rude, polite := onNode(jobOf(restartPolicy, harness.ExitsSevenOnTerm), node), onNode(jobOf(restartPolicy, harness.ExitsZeroOnTerm), node)
			env := func(namesAndValues ...string) *batchv1.Job {
				return onNode(jobWithEnv(restartPolicy, namesAndValues...), node)
			}
			all = append(all,
				behaviour{name + "Auto", with(v1alpha1.ModeAuto), rude, byNode(7)},
				behaviour{name + "Auto, Respect", with(v1alpha1.ModeAuto, respect), polite.DeepCopy(), unusable(v1alpha1.ReasonNoUsableMode)},
				behaviour{name + "Image, Respect", with(v1alpha1.ModeImage, respect), polite.DeepCopy(), endedByImage},
				behaviour{name + "Image", with(v1alpha1.ModeImage), rude.DeepCopy(), endedByImage},
				behaviour{name + "CRR falls back", with(v1alpha1.ModeCRR), rude.DeepCopy(), both(byNode(7), event(corev1.EventTypeNormal, v1alpha1.ReasonFallback))},
				behaviour{name + "both variables", nil, env(bothVariables...), byNode(0)},
				behaviour{name + "variable for CRR falls back", nil, env(v1alpha1.EnvTerminate, "true"), both(byNode(0), event(corev1.EventTypeNormal, v1alpha1.ReasonFallback))},
			)
		}
	}
	// With a terminal phase, the kubelet could refuse the port to the Job's next pod.
	hostPort := onNode(jobOf(corev1.RestartPolicyNever, harness.ExitsSevenOnTerm), fargateNode)
	hostPort.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 19000, HostPort: 19000}}
	return append(all, behaviour{fargateNode + "/host port, Auto", with(v1alpha1.ModeAuto), hostPort, endedByImage})
}

// jobBehaviours are fields of Jobs.
func jobBehaviours() []behaviour {
	var all []behaviour
	for _, mode := range modes {
		fails := jobOf(corev1.RestartPolicyNever, harness.ExitsSevenOnTerm)
		fails.Spec.Template.Spec.Containers[1] = harness.Container(harness.MainName, "sleep 2; exit 1")
		fails.Spec.BackoffLimit, fails.Spec.PodReplacementPolicy = ptr.To[int32](1), ptr.To(batchv1.Failed)
		all = append(all, behaviour{"podReplacementPolicy Failed, " + string(mode), with(mode), fails, failedTwice})
		if mode == v1alpha1.ModeImage {
			// It costs a restart, which counts towards the Job's backoffLimit.
			all = append(all, behaviour{
				"backoffLimit is at risk", with(mode), jobOf(corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm),
				both(endedByImage, event(corev1.EventTypeWarning, v1alpha1.ReasonBackoffLimitRisk)),
			})
			continue
		}
		// A single restart fails the Job.
		once := jobOf(corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm)
		once.Spec.BackoffLimit = ptr.To[int32](0)
		all = append(all, behaviour{"backoffLimit 0, " + string(mode), with(mode), once, completed})
	}
	late := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(3600))
	late.Spec.ActiveDeadlineSeconds = ptr.To[int64](15)
	late.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return append(all, behaviour{"activeDeadlineSeconds", with(v1alpha1.ModeAuto), late, func(test *harness.Test) {
		test.WaitForFailed("job")
		test.Recorder.Look(func(seen harness.Seen) {
			if reason, _ := harness.JobCondition(seen.Job("job"), batchv1.JobFailed); !strings.HasPrefix(reason, batchv1.JobReasonDeadlineExceeded) {
				test.Errorf("The Job failed with %s, want %s", reason, batchv1.JobReasonDeadlineExceeded)
			}
		})
		requireNotEnded(test, test.RecordOf("job"))
	}})
}

// stuckBehaviours are modes that cannot work, or cannot work yet.
func stuckBehaviours() []behaviour {
	noFallback := func(spec *v1alpha1.PolicySpec) { spec.Fallback = v1alpha1.FallbackDisabled }
	// A pod whose sidecars are all ignored is done when they have stopped, whatever their images.
	unpullable := func(spec *v1alpha1.PolicySpec) {
		spec.Image, spec.TerminationDeadlineSeconds = missingImage, ptr.To[int32](3)
	}
	polite, rude := jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm), jobOf(corev1.RestartPolicyNever, harness.ExitsSevenOnTerm)
	polite.Spec.BackoffLimit, rude.Spec.BackoffLimit = ptr.To[int32](0), ptr.To[int32](0)
	onFailure := jobOf(corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm)
	return []behaviour{
		{"no daemon for CRR", with(v1alpha1.ModeCRR, noFallback), onNode(polite.DeepCopy(), fargateNode), unusable(v1alpha1.ReasonNoKruiseDaemon)},
		{"no kubelet for PodPhase", with(v1alpha1.ModePodPhase, noFallback), onNode(polite.DeepCopy(), virtualNode), unusable(v1alpha1.ReasonVirtualNode)},
		{"unpullable image, Ignore", with(v1alpha1.ModeImage, unpullable), onNode(rude.DeepCopy(), fargateNode), completed},
		{"unpullable image on " + virtualNode + ", Ignore", with(v1alpha1.ModeImage, unpullable), onNode(rude.DeepCopy(), virtualNode), completed},
		// Under Never, a kubelet takes a container that it stopped and cannot restart for terminated, so its exit code counts.
		{"unpullable image, Respect, exits 0", with(v1alpha1.ModeImage, unpullable, respect), onNode(polite, fargateNode), completed},
		{"unpullable image, Respect, exits 7", with(v1alpha1.ModeImage, unpullable, respect), onNode(rude, fargateNode), failedOnce},
		// Otherwise the Job completes once the image is available.
		{"unpullable image, Respect, on " + virtualNode, with(v1alpha1.ModeImage, unpullable, respect, noFallback), onNode(onFailure, virtualNode), stuckUntilPullable},
		{"unpullable image, Respect, on " + fargateNode, with(v1alpha1.ModeImage, unpullable, respect, noFallback), onNode(onFailure.DeepCopy(), fargateNode), stuckUntilPullable},
		{
			"unpullable image of the policy for env", with("", unpullable, respect),
			onNode(jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage), virtualNode), stuckUntilPullable,
		},
	}
}

// with returns a policy of the mode with the changes. Its deadline leaves a busy node time before the next mode is tried.
func with(mode v1alpha1.Mode, changes ...func(*v1alpha1.PolicySpec)) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(mode)
	policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](120)
	for _, change := range changes {
		change(&policy.Spec.PolicySpec)
	}
	return policy
}

// policyLabel is a label of pods with the name of their policy.
const policyLabel = "policy"

// named gives a policy a name, and the pods with that name as a label.
func named(policy *v1alpha1.SidecarTerminationPolicy, name string) *v1alpha1.SidecarTerminationPolicy {
	policy.Name, policy.Spec.PodSelector.MatchLabels = name, map[string]string{policyLabel: name}
	return policy
}

func respect(spec *v1alpha1.PolicySpec) { spec.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect }

func threeModes() *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeAuto, "by-crr", "by-image", "by-phase")
	policy.Spec.Sidecars[0].Mode, policy.Spec.Sidecars[0].ExitCodePolicy = v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect
	policy.Spec.Sidecars[1].Mode, policy.Spec.Sidecars[1].Image = v1alpha1.ModeImage, harness.QuickExitImage
	policy.Spec.Sidecars[2].Mode = v1alpha1.ModePodPhase
	return policy
}

// jobOf returns a Job whose sidecar runs the script.
func jobOf(restartPolicy corev1.RestartPolicy, script string) *batchv1.Job {
	return harness.Job("job", restartPolicy, harness.Sidecar(script), harness.Main(2))
}

// jobWithEnv returns a Job whose sidecar has the environment variables.
func jobWithEnv(restartPolicy corev1.RestartPolicy, namesAndValues ...string) *batchv1.Job {
	return harness.Job("job", restartPolicy, harness.WithEnv(harness.Sidecar(harness.ExitsZeroOnTerm), namesAndValues...), harness.Main(2))
}

// onNode schedules the Job's pods to the node, which has taints.
func onNode(job *batchv1.Job, node string) *batchv1.Job {
	job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	job.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return job
}

// both requires two things.
func both(first, second requirement) requirement {
	return func(test *harness.Test) {
		test.Helper()
		first(test)
		second(test)
	}
}

// event requires an event of the type on the pod.
func event(kind string, reason v1alpha1.Reason) requirement {
	return func(test *harness.Test) {
		test.Helper()
		if found := test.WaitForEvent(test.RecordOf("job").Pod, reason); found.Type != kind {
			test.Errorf("Event %s is of type %s, want %s", reason, found.Type, kind)
		}
	}
}

func completed(test *harness.Test) {
	test.Helper()
	test.RequireCompleted("job")
}

// failedOnce requires that the Job and its only pod are Failed.
func failedOnce(test *harness.Test) {
	test.Helper()
	test.WaitForFailed("job")
	if record := test.RequireFinished("job"); record.Pod.Status.Phase != corev1.PodFailed {
		test.Errorf("Pod %s is %s, want Failed", record.Pod.Name, record.Pod.Status.Phase)
	}
}

// failedTwice requires that the Job has had two pods, whose main containers ran once.
func failedTwice(test *harness.Test) {
	test.Helper()
	test.WaitForFailed("job")
	for _, record := range test.RequireAllFinished("job", 2) {
		if record.Pod.Status.Phase != corev1.PodFailed || record.Container(harness.MainName).RestartCount != 0 {
			test.Errorf("The main container of pod %s did not fail once: %s", record.Pod.Name, record.PhaseLog())
		}
	}
}

// endedByCRR requires that the Job completes, and that one CRR terminated the sidecar, which handled SIGTERM.
func endedByCRR(test *harness.Test) {
	test.Helper()
	record := test.RequireCompleted("job")
	requireCRR(test, record, harness.SidecarName)
	test.RequireImage(record, harness.SidecarName, harness.BusyboxImage)
	requireRun(test, record, harness.SidecarName, 0, 0)
}

// requireCRR requires that the pod has had one CRR, for the container.
func requireCRR(test *harness.Test, record *harness.PodRecord, container string) {
	test.Helper()
	for _, crr := range test.RequireCRRs(record, 1) {
		if !slices.Equal(crr.Containers, []string{container}) {
			test.Errorf("The CRR names %v, want %s", crr.Containers, container)
		}
	}
}

// requireRun requires that the container terminated with the exit code after the restarts.
func requireRun(test *harness.Test, record *harness.PodRecord, container string, exitCode, restarts int32) {
	test.Helper()
	status := record.Container(container)
	if status == nil || status.State.Terminated == nil || status.State.Terminated.ExitCode != exitCode || status.RestartCount != restarts {
		test.Errorf("Container %s of pod %s is %+v, want exit code %d after %d restarts", container, record.Pod.Name, status, exitCode, restarts)
	}
}

// endedByCRRAndImage requires that the Job completes, and that its sidecars were ended by the modes of their names.
func endedByCRRAndImage(test *harness.Test) {
	test.Helper()
	record := test.RequireCompleted("job")
	requireCRR(test, record, "by-crr")
	test.RequireImage(record, "by-crr", harness.BusyboxImage)
	test.RequireImage(record, "by-image", harness.QuickExitImage)
}

// endedByImage requires that the Job completes, and that the quick-exit image replaced the sidecar, without a CRR. The pod may be done
// before the image has run.
func endedByImage(test *harness.Test) {
	test.Helper()
	record := test.RequireCompleted("job")
	test.RequireCRRs(record, 0)
	test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
	// A virtual kubelet writes the status with the metadata that it knows, which may be older than the annotation.
	if record.Pod.Spec.NodeName != virtualNode && record.Pod.Annotations[v1alpha1.AnnotationImageSwap] == "" {
		test.Errorf("Pod %s has no annotation %s", record.Pod.Name, v1alpha1.AnnotationImageSwap)
	}
}

// endedByPhase requires that the Job completes, and that the kubelet stopped the sidecar because of the pod's phase: it did not restart
// and has the exit code.
func endedByPhase(exitCode int32) requirement {
	return func(test *harness.Test) {
		test.Helper()
		record := test.RequireCompleted("job")
		test.RequireCRRs(record, 0)
		for annotation, value := range map[string]string{
			v1alpha1.AnnotationEnd: v1alpha1.EndPodPhase, v1alpha1.AnnotationMainContainers: v1alpha1.MainsDecided,
		} {
			if got, want := record.Pod.Annotations[annotation], value+"/"+string(record.Pod.UID); got != want {
				test.Errorf("Annotation %s of pod %s is %q, want %q", annotation, record.Pod.Name, got, want)
			}
		}
		test.RequireImage(record, harness.SidecarName, harness.BusyboxImage)
		requireRun(test, record, harness.SidecarName, exitCode, 0)
	}
}

// unusable requires that the pod reports at once that its node does not support its mode.
func unusable(reason v1alpha1.Reason) requirement {
	return func(test *harness.Test) {
		test.Helper()
		test.WaitForEvent(test.WaitForMain("job"), reason)
		requireStillRunning(test)
	}
}

// stuckUntilPullable requires that the pod and the policy report a sidecar that is stuck, and sets an image that can be pulled.
func stuckUntilPullable(test *harness.Test) {
	test.Helper()
	policy := harness.Policy("")
	policy.Namespace = test.Namespace
	pod := test.WaitForMain("job")
	if event := test.WaitForEvent(pod, v1alpha1.ReasonStuck); !strings.Contains(event.Message, harness.SidecarName) {
		test.Errorf("The event says %q", event.Message)
	}
	test.EventuallyStatus(policy, "the pod to be stuck", func(status v1alpha1.PolicyStatus) error {
		if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); status.StuckPods != 1 || degraded.Status != metav1.ConditionTrue {
			return fmt.Errorf("stuckPods is %d and degraded is %+v", status.StuckPods, degraded)
		}
		return nil
	})
	requireStillRunning(test)

	test.Get(pod)
	if image := (&harness.PodRecord{Pod: pod}).Image(harness.SidecarName); image != missingImage {
		test.Errorf("The sidecar has image %s, want %s", image, missingImage)
	}
	patch := client.RawPatch("application/strategic-merge-patch+json",
		[]byte(`{"spec":{"containers":[{"name":"`+harness.SidecarName+`","image":"`+harness.QuickExitImage+`"}]}}`))
	if err := test.Client.Patch(test.Context(), pod, patch); err != nil {
		test.Fatalf("Set an available image: %v", err)
	}
	test.RequireCompleted("job")
	test.EventuallyStatus(policy, "no pod to be stuck", func(status v1alpha1.PolicyStatus) error {
		if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); status.StuckPods != 0 || degraded.Type != "" {
			return fmt.Errorf("stuckPods is %d and degraded is %+v", status.StuckPods, degraded)
		}
		return nil
	})
}

// requireStillRunning requires that the Job named job has one pod, which is Running.
func requireStillRunning(test *harness.Test) {
	test.Helper()
	test.Recorder.Look(func(seen harness.Seen) {
		pods := seen.Pods("job")
		if len(pods) != 1 || pods[0].Pod.Status.Phase != corev1.PodRunning {
			test.Errorf("The Job does not have one running pod: %s", seen.Describe("job"))
		}
	})
}

// Pods with restartPolicy Always, as those of a CloneSet, and pods that no policy selects keep their sidecars. The Job shows that the
// operator had time to act.
func TestLeftAlone(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	labels := map[string]string{"app": "selected"}
	policy := harness.Policy(v1alpha1.ModeAuto)
	policy.Spec.PodSelector.MatchLabels = labels
	template := harness.PodTemplate(corev1.RestartPolicyAlways, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1))
	template.Labels = labels
	test.Create(policy, jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm), harness.Pod("service", labels, template),
		harness.Kruise("CloneSet", "clone", map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": labels}, "template": harness.ToMap(&template),
			"scaleStrategy": map[string]any{"disablePVCReuse": true},
		}))
	all := []string{"job", "service", "clone"}
	for _, owner := range all {
		test.WaitForMain(owner)
	}

	selected := harness.Job("selected", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	selected.Spec.Template.Labels = labels
	test.Create(selected)
	test.RequireCompleted("selected")
	for _, owner := range all {
		record := test.RecordOf(owner)
		requireUnwritten(test, record)
		if sidecar := record.Container(harness.SidecarName); sidecar.State.Running == nil || sidecar.RestartCount != 0 {
			test.Errorf("The sidecar of %s is not running: %+v", owner, sidecar)
		}
	}
}

// requireUnwritten requires that the operator has not written to the pod, and has emitted no other events than the allowed ones.
func requireUnwritten(test *harness.Test, record *harness.PodRecord, allowedEvents ...string) {
	test.Helper()
	requireNotEnded(test, record)
	for _, keys := range []map[string]string{record.Pod.Labels, record.Pod.Annotations} {
		for key := range keys {
			if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
				test.Errorf("Pod %s has %s", record.Pod.Name, key)
			}
		}
	}
	if events := eventsOfOperator(test, record.Pod); len(events) > 0 && !slices.Equal(events, allowedEvents) {
		test.Errorf("Pod %s has events %v of the operator, want at most %v", record.Pod.Name, events, allowedEvents)
	}
	if writes := writesOfOperator(record.Pod); len(writes) > 0 {
		test.Errorf("The operator has written to pod %s: %v", record.Pod.Name, writes)
	}
}

// writesOfOperator returns the fields that the operator has written last.
func writesOfOperator(pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(pod.ManagedFields), func(entry metav1.ManagedFieldsEntry) bool {
		return !strings.Contains(entry.Manager, "sidecar-termination") || strings.Contains(entry.Manager, "e2e")
	})
}

// requireNotEnded requires that the operator has not tried to end a container of the pod. It may have marked the pod.
func requireNotEnded(test *harness.Test, record *harness.PodRecord) {
	test.Helper()
	test.RequireCRRs(record, 0)
	for _, container := range record.Pod.Spec.Containers {
		test.RequireImage(record, container.Name, harness.BusyboxImage)
	}
	if record.Pod.Annotations[v1alpha1.AnnotationEnd] != "" {
		test.Errorf("Pod %s ends by its phase", record.Pod.Name)
	}
}
