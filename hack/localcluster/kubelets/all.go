// SPDX-License-Identifier: Apache-2.0

package kubelets

import "slices"

// Names of the kubelets that ignore phases which others write.
const (
	IgnorePhase      = "ignore-phase"
	IgnorePhaseMerge = "ignore-phase-merge"
)

// Files of Kubernetes that have edits.
const (
	podWorkers    = "pkg/kubelet/pod_workers.go"
	podStatus     = "pkg/kubelet/kubelet_pods.go"
	statusManager = "pkg/kubelet/status/status_manager.go"
)

// All are the kubelets that differ from a released one.
var All = []Kubelet{
	{Name: IgnorePhase, Edits: ignorePhase},
	{Name: IgnorePhaseMerge, Edits: slices.Concat(ignorePhase, ignorePhaseMerge)},
	{Name: "evented-pleg", Gates: []Gate{{Name: "EventedPLEG", Since: 26}}, ContainerEvents: true},
	{Name: "container-restart", Gates: []Gate{
		{Name: "ContainerRestartRules", Since: 34},
		{Name: "NodeDeclaredFeatures", Since: 35}, // RestartAllContainersOnContainerExits needs it
		{Name: "ReduceDefaultCrashLoopBackOffDecay", Since: 33},
		{Name: "RestartAllContainersOnContainerExits", Since: 35},
	}},
	{Name: "slow", Edits: slow},
}

// ignorePhase makes the pod workers use the phase that the kubelet has determined itself. They use the API's phase for a pod
// whose status the kubelet has not determined yet: without it, finished pods would run again after a restart of the kubelet.
var ignorePhase = []Edit{
	{podWorkers, "func (p *podWorkers) UpdatePod(", `
func (p *podWorkers) hasTerminalPhase(pod *v1.Pod) bool {
	phase := pod.Status.Phase
	if kubelet, ok := p.podSyncer.(*Kubelet); ok {
		if status, ok := kubelet.statusManager.GetPodStatus(pod.UID); ok {
			phase = status.Phase
		}
	}
	return phase == v1.PodFailed || phase == v1.PodSucceeded
}

func (p *podWorkers) UpdatePod(`},
	// Whether a pod that is new to the workers has terminated.
	{podWorkers, "(options.Pod.Status.Phase == v1.PodFailed || options.Pod.Status.Phase == v1.PodSucceeded)", "p.hasTerminalPhase(options.Pod)"},
	// Whether the workers tear a pod down.
	{podWorkers, "case pod.Status.Phase == v1.PodFailed, pod.Status.Phase == v1.PodSucceeded:", "case p.hasTerminalPhase(pod):"},
}

// ignorePhaseMerge makes generateAPIPodStatus ignore the API's phase in the same way.
var ignorePhaseMerge = []Edit{
	// A phase that is not terminal takes over a terminal phase of the API.
	{podStatus, "case pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded:", "case !found && (pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded):"},
	// Another phase is replaced with a terminal phase of the API.
	{podStatus, "if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {", "if !found && (pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded) {"},
}

// slow delays all work on pods by a second.
var slow = []Edit{
	// Each pod has a worker. A delayed sync sees the update that is the newest after the delay.
	{podWorkers, "for range podUpdates {", "for range podUpdates {\n\ttime.Sleep(time.Second)"},
	// A status is a second old when the API server gets it. There is one delay for all statuses that are due.
	{statusManager, "for _, update := range updatedStatuses {", "if len(updatedStatuses) > 0 {\n\ttime.Sleep(time.Second)\n\t}\n\tfor _, update := range updatedStatuses {"},
}
