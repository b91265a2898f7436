// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// podWrite is a write to a pod with restartPolicy Never whose main container has succeeded and whose proxy runs, and that has fields
// of other writers.
type podWrite struct {
	pod    []func(*corev1.Pod) // changes of the pod before the write
	status bool                // patch the status subresource
	patch  string              // a strategic merge patch in YAML, where UID stands for that of the pod
	denied string              // empty if the write is accepted
}

func testPodWrites(t *testing.T, user client.Client, writes map[string]podWrite) {
	t.Helper()
	admin, _ := newClient(t)
	_, finished := finishedPod(t, admin)
	for name, w := range writes {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: finished.Namespace, GenerateName: "write-", Labels: map[string]string{"app": "job"},
					Annotations:     map[string]string{"example.com/note": "kept"},
					Finalizers:      []string{"example.com/kept"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "1"}},
				},
				Spec: *finished.Spec.DeepCopy(), Status: *finished.Status.DeepCopy(),
			}
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			pod.Status.Message = "as the kubelet says"
			for _, change := range w.pod {
				change(pod)
			}
			status := pod.Status
			create(t, admin, pod)
			t.Cleanup(func() {
				_ = admin.Patch(context.Background(), pod, patchOf(types.MergePatchType, "metadata: {finalizers: null}"))
			})
			pod.Status = status
			if err := admin.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			var err error
			if patch := patchOf(types.StrategicMergePatchType, strings.ReplaceAll(w.patch, "UID", string(pod.UID))); w.status {
				err = user.Status().Patch(t.Context(), pod, patch)
			} else {
				err = user.Patch(t.Context(), pod, patch)
			}
			requireDenied(t, err, w.denied, "")
		})
	}
}

func setPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func setStatuses(statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.ContainerStatuses = statuses }
}

// withGate gives the pod a scheduling gate. While it has one, the API server allows changes of its node selection.
func withGate(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Spec.SchedulingGates, pod.Status = "", []corev1.PodSchedulingGate{{Name: "example.com/quota"}}, corev1.PodStatus{}
}

// asMirrorPod turns the pod into a mirror pod of a static pod, which cannot have a ServiceAccount.
func asMirrorPod(pod *corev1.Pod) {
	pod.Annotations[corev1.MirrorPodAnnotationKey] = "5e8ff9bf55ba3508199d22e984129be6"
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, pod.Spec.Volumes = "", "", nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = nil
		}
	}
}

// The operator's ServiceAccount can write only what the operator writes: to pods that do not restart always. It can swap images, record
// that main containers have succeeded, and write phases only in pods with a terminated container.
func TestAdmissionLimitsOperator(t *testing.T) {
	installAdmission(t)
	installOutcome(t)
	const (
		record     = "metadata: {annotations: {sidecartermination.dev/image-swap: '{\"proxy\":{},\"main\":{},\"setup\":{}}'}}\n"
		swapProxy  = record + "spec: {containers: [{name: proxy, image: 'quick-exit:1'}]}"
		onlyProxy  = "metadata: {annotations: {sidecartermination.dev/image-swap: '{\"proxy\":{}}'}}\n"
		succeeded  = "status: {phase: Succeeded}"
		failed     = "status: {phase: Failed}"
		annotation = "metadata: {annotations: {sidecartermination.dev/end: PodPhase/UID}}"
		recorded   = "metadata: {annotations: {sidecartermination.dev/main-containers: Succeeded/UID}}"

		mark       = "metadata: {labels: {sidecartermination.dev/outcome: MainContainers}, annotations: {sidecartermination.dev/ignored-exit-codes: proxy/UID"
		markOnly   = mark + "}}"
		markEnd    = mark + ", sidecartermination.dev/end: PodPhase/UID}}\nstatus: {conditions: [{type: SidecarTerminated, status: 'False', reason: PodPhase}]}"
		markRecord = mark + ", sidecartermination.dev/main-containers: Succeeded/UID}}"
		recordEnd  = mark + ", sidecartermination.dev/main-containers: Succeeded/UID, sidecartermination.dev/end: PodPhase/UID}}"
		markFailed = mark + ", sidecartermination.dev/end: Failed/UID}}\nstatus: {phase: Failed, conditions: [{type: SidecarTerminated, status: 'False', reason: PodPhase}]}"

		deniedAlways    = "only pods with restartPolicy Never or OnFailure"
		deniedMirror    = "the mirror pod of a static pod"
		deniedSwap      = "only when another container has terminated and keeps its image"
		deniedPhase     = "may set phase Succeeded only when a container has exited 0"
		deniedSwapped   = "only with a record"
		deniedRecord    = "may record that main containers have succeeded only when a container has exited 0"
		deniedSpec      = "only the images of regular containers"
		deniedLabel     = "may change only label"
		deniedNote      = "may change only a pod's annotations"
		deniedOwner     = "may not change a pod's finalizers and owners"
		deniedStatus    = "only the phase and conditions"
		deniedCondition = "may change only condition"
		deniedGrace     = "only with a terminationGracePeriodSeconds of at most 3600"
	)
	type pods = []func(*corev1.Pod)
	waiting := containerStatus("proxy", "ImagePullBackOff")
	always := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }
	longGrace := func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(3601)) }
	allEnded := setStatuses(podtest.Ended("main", 0), podtest.Ended("proxy", 7))
	mainFailed := setStatuses(podtest.Ended("main", 3), podtest.Running("proxy"))
	allRun := setStatuses(podtest.Running("main"), podtest.Running("proxy"))
	testPodWrites(t, as(t, operatorUser()), map[string]podWrite{
		"swap after main succeeded":      {patch: swapProxy},
		"swap after main failed":         {pod: pods{mainFailed}, patch: swapProxy},
		"swap under OnFailure":           {pod: pods{onFailure}, patch: swapProxy},
		"swap of restarting sidecar":     {pod: pods{onFailure, setStatuses(podtest.Ended("main", 0), podtest.Ended("proxy", 1))}, patch: swapProxy},
		"swap of waiting sidecar":        {pod: pods{setStatuses(podtest.Ended("main", 0), waiting)}, patch: swapProxy},
		"swap of sidecar without status": {pod: pods{setStatuses(podtest.Ended("main", 0))}, patch: swapProxy},
		"swap under Always":              {pod: pods{always}, patch: swapProxy, denied: deniedAlways},
		"swap while all run":             {pod: pods{allRun}, patch: swapProxy, denied: deniedSwap},
		"swap without statuses":          {pod: pods{setStatuses()}, patch: swapProxy, denied: deniedSwap},
		"swap of terminated container":   {patch: record + "spec: {containers: [{name: main, image: 'mine:1'}]}", denied: deniedSwap},
		"swap of all containers":         {patch: record + "spec: {containers: [{name: main, image: 'mine:1'}, {name: proxy, image: 'mine:1'}]}", denied: deniedSwap},
		"swap in mirror pod":             {pod: pods{asMirrorPod}, patch: swapProxy, denied: deniedMirror},
		"image without record":           {patch: "spec: {containers: [{name: proxy, image: 'mine:1'}]}", denied: deniedSwapped},
		"image with other's record":      {patch: onlyProxy + "spec: {containers: [{name: main, image: 'mine:1'}]}", denied: deniedSwapped},
		"image of init container":        {patch: record + "spec: {initContainers: [{name: setup, image: 'mine:1'}]}", denied: deniedSpec},

		"activeDeadlineSeconds":    {patch: "spec: {activeDeadlineSeconds: 1}", denied: deniedSpec},
		"toleration":               {patch: "spec: {tolerations: [{operator: Exists}, {key: x, operator: Exists}]}", denied: deniedSpec},
		"scheduling gate removed":  {pod: pods{withGate}, patch: "spec: {schedulingGates: null}", denied: deniedSpec},
		"node selector":            {pod: pods{withGate}, patch: "spec: {nodeSelector: {team: other}}", denied: deniedSpec},
		"command":                  {patch: "spec: {containers: [{name: proxy, command: [mine]}]}", denied: deniedByValidation},
		"env":                      {patch: "spec: {containers: [{name: proxy, env: [{name: A, value: b}]}]}", denied: deniedByValidation},
		"added container":          {patch: "spec: {containers: [{name: mine, image: 'mine:1'}]}", denied: deniedByValidation},
		"ephemeral container":      {patch: "spec: {ephemeralContainers: [{name: mine, image: 'mine:1'}]}", denied: deniedByValidation},
		"own label without status": {patch: "metadata: {labels: {sidecartermination.dev/outcome: MainContainers}}", denied: deniedLabel},
		"other label":              {patch: "metadata: {labels: {app: victim}}", denied: deniedLabel},
		"label removed":            {patch: "metadata: {labels: {app: null}}", denied: deniedLabel},
		"other annotation":         {patch: "metadata: {annotations: {example.com/run: rm}}", denied: deniedNote},
		"other annotation removed": {patch: "metadata: {annotations: {example.com/note: null}}", denied: deniedNote},
		"annotation under Always":  {pod: pods{always, allRun}, patch: annotation, denied: deniedAlways},
		"annotation on mirror pod": {pod: pods{onFailure, asMirrorPod}, patch: annotation, denied: deniedMirror},
		"finalizer removed":        {patch: "metadata: {finalizers: null}", denied: deniedOwner},
		"owner removed":            {patch: "metadata: {ownerReferences: null}", denied: deniedOwner},

		"mark":                       {status: true, patch: markOnly},
		"mark while all run":         {status: true, pod: pods{allRun}, patch: markOnly},
		"mark without statuses":      {status: true, pod: pods{setStatuses()}, patch: markOnly},
		"mark under Always":          {status: true, pod: pods{always}, patch: markOnly, denied: deniedAlways},
		"mark of mirror pod":         {status: true, pod: pods{asMirrorPod}, patch: markOnly, denied: deniedMirror},
		"mark in advance":            {status: true, pod: pods{allRun}, patch: markEnd},
		"mark that ends":             {status: true, patch: markEnd},
		"mark after exit 3":          {status: true, pod: pods{mainFailed}, patch: markFailed},
		"record after exit 0":        {status: true, patch: markRecord},
		"record that ends":           {status: true, patch: recordEnd},
		"record after exit 3":        {status: true, pod: pods{mainFailed}, patch: markRecord, denied: deniedRecord},
		"record while all run":       {status: true, pod: pods{allRun}, patch: markRecord, denied: deniedRecord},
		"record without statuses":    {status: true, pod: pods{setStatuses()}, patch: markRecord, denied: deniedRecord},
		"record without status":      {pod: pods{allRun}, patch: recorded, denied: deniedRecord},
		"other mark without status":  {pod: pods{allRun}, patch: annotation},
		"Succeeded after exit 0":     {status: true, patch: succeeded},
		"Succeeded after exit 3":     {status: true, pod: pods{mainFailed}, patch: succeeded, denied: deniedPhase},
		"Succeeded while all run":    {status: true, pod: pods{allRun}, patch: succeeded, denied: deniedPhase},
		"Succeeded without statuses": {status: true, pod: pods{setStatuses()}, patch: succeeded, denied: deniedPhase},
		"Failed after exit 3":        {status: true, pod: pods{mainFailed}, patch: failed},
		"Failed after exit 0":        {status: true, patch: failed, denied: deniedPhase},
		"Failed while all run":       {status: true, pod: pods{allRun}, patch: failed, denied: deniedPhase},
		"Succeeded under Always":     {status: true, pod: pods{always}, patch: succeeded, denied: deniedAlways},
		"phase of mirror pod":        {status: true, pod: pods{asMirrorPod}, patch: succeeded, denied: deniedMirror},
		"second phase":               {status: true, pod: pods{setPhase(corev1.PodSucceeded)}, patch: failed, denied: "and only once"},
		"non-terminal phase":         {status: true, patch: "status: {phase: Pending}", denied: "only to Succeeded or Failed"},
		"mark, long grace":           {status: true, pod: pods{longGrace}, patch: markOnly},
		"end in advance, long grace": {status: true, pod: pods{longGrace, allRun}, patch: markEnd, denied: deniedGrace},
		"end, long grace":            {status: true, pod: pods{longGrace}, patch: markEnd, denied: deniedGrace},
		"Succeeded, long grace":      {status: true, pod: pods{longGrace}, patch: succeeded, denied: deniedGrace},
		"Failed, long grace":         {status: true, pod: pods{longGrace, mainFailed}, patch: failed, denied: deniedGrace},
		"nothing runs, long grace":   {status: true, pod: pods{longGrace, allEnded}, patch: succeeded},
		"label with status":          {status: true, patch: "metadata: {labels: {app: victim}}", denied: deniedLabel},
		"finalizer with status":      {status: true, patch: "metadata: {finalizers: null}", denied: deniedOwner},
		"exit code": {status: true, denied: deniedStatus,
			patch: "status: {containerStatuses: [{name: main, image: '', imageID: '', ready: false, restartCount: 0, state: {terminated: {exitCode: 3}}}]}"},
		"pod IP":                  {status: true, patch: "status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}", denied: deniedStatus},
		"reason":                  {status: true, patch: "status: {reason: Evicted}", denied: deniedStatus},
		"message removed":         {status: true, patch: "status: {message: null}", denied: deniedStatus},
		"other condition":         {status: true, patch: `status: {conditions: [{type: Ready, status: "False"}]}`, denied: deniedCondition},
		"other condition removed": {status: true, patch: "status: {conditions: null}", denied: deniedCondition},
	})
}

// The limits match the ServiceAccount's name in any namespace and with any prefix and suffix.
func TestAdmissionMatchesRenamedOperator(t *testing.T) {
	installAdmission(t)
	admin, _ := newClient(t)
	_, pod := finishedPod(t, admin)
	for user, denied := range map[string]string{
		"system:serviceaccount:elsewhere:" + deployment:                        "may change only label",
		"system:serviceaccount:" + namespace + ":prod-" + deployment + "-blue": "may change only label",
		"system:serviceaccount:" + namespace + ":other":                        "",
		deployment: "",
	} {
		t.Run(user, func(t *testing.T) {
			bindEverywhere(t, "sidecar-termination-manager-image-role", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
			c := as(t, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}})
			patch := func(ctx context.Context, patch string) error {
				return c.Patch(ctx, pod.DeepCopy(), patchOf(types.MergePatchType, patch), client.DryRunAll)
			}
			testenv.Eventually(t, "the user to have permission to patch pods", func(ctx context.Context) error { return patch(ctx, "{}") })
			requireDenied(t, patch(t.Context(), "metadata: {labels: {app: victim}}"), denied, "")
		})
	}
}
