// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// probed returns the pod with the states of its containers.
func probed(phase corev1.PodPhase, main, sidecar corev1.ContainerState, restarts int32) *corev1.Pod {
	pod := newPod(Options{Node: "node"})
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: mainName, State: main, ContainerID: "main"},
		{Name: sidecarName, State: sidecar, ContainerID: "sidecar", RestartCount: restarts},
	}
	return pod
}

func TestJudge(t *testing.T) {
	before := probed(corev1.PodRunning, exited(0), runs(), 0)
	deleted := probed(corev1.PodRunning, exited(0), runs(), 0)
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	tests := map[string]struct {
		after   *corev1.Pod
		works   bool
		message string
	}{
		"restarted":                       {probed(corev1.PodSucceeded, exited(0), exited(0), 1), true, "mode Image works on"},
		"restarted, restarts not counted": {probed(corev1.PodSucceeded, exited(0), exited(0), 0), true, "mode Image works on"},
		"change ignored":                  {probed(corev1.PodRunning, exited(0), runs(), 0), false, "ignores changed images"},
		"image cannot be pulled":          {probed(corev1.PodRunning, exited(0), waits("ErrImagePull"), 0), false, "ErrImagePull"},
		"stopped for good":                {probed(corev1.PodFailed, exited(0), exited(137), 0), false, "not started again"},
		"command is missing":              {probed(corev1.PodFailed, exited(0), exited(128), 1), false, "does not have the command"},
		"new image does not exit":         {probed(corev1.PodRunning, exited(0), runs(), 1), false, "still runs"},
		"whole pod was run again":         {probed(corev1.PodRunning, runs(), runs(), 1), false, "was run again"},
		"pod did not succeed":             {probed(corev1.PodFailed, exited(0), exited(3), 1), false, "did not succeed"},
		"pod was deleted":                 {deleted, false, "was deleted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			verdict := judge(before, test.after, 2*time.Second)
			if verdict.Works != test.works || !strings.Contains(verdict.Message, test.message) {
				t.Errorf("the verdict is %+v", verdict)
			}
		})
	}
}
