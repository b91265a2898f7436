// SPDX-License-Identifier: Apache-2.0

//go:build !race

package podcache

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

// hostileFields each fill one part of a pod with that many units. They are what the author of a pod, or a writer of its status, can
// make large.
var hostileFields = map[string]func(pod *corev1.Pod, units int){
	"Containers": func(pod *corev1.Pod, units int) {
		pod.Spec.Containers = append(pod.Spec.Containers, many(units, serve)...)
	},
	"ContainersWithinTheBound": func(pod *corev1.Pod, units int) {
		for i := range plan.MaxContainers - len(pod.Spec.Containers) {
			container := serve(i)
			container.Command = []string{"/opt/server"}
			container.Args = []string{strings.Repeat("x", units)}
			pod.Spec.Containers = append(pod.Spec.Containers, container)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, podtest.Running(container.Name))
		}
	},
	"NativeSidecars": func(pod *corev1.Pod, units int) {
		pod.Spec.InitContainers = many(units, func(i int) corev1.Container {
			container := serve(i)
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			return container
		})
	},
	"Labels":      func(pod *corev1.Pod, units int) { pod.Labels = numbered(units, "v") },
	"Annotations": func(pod *corev1.Pod, units int) { pod.Annotations = numbered(units, "v") },
	"ListOfSidecars": func(pod *corev1.Pod, units int) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationSidecars: "main" + strings.Repeat(",main", units)}
	},
	"Records": func(pod *corev1.Pod, units int) {
		swaps := many(units, func(i int) string { return fmt.Sprintf(`"s%d":{"attempt":%d}`, i, i) })
		record := "{" + strings.Join(swaps, ",") + "}"
		pod.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: record}
	},
	"Marks": func(pod *corev1.Pod, units int) {
		names := strings.Repeat("proxy,", units)
		pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
		pod.Annotations = map[string]string{
			v1alpha1.AnnotationIgnoredExitCodes: names + "/" + string(pod.UID), v1alpha1.AnnotationEnd: names, v1alpha1.AnnotationMainContainers: names,
		}
	},
	"Command": func(pod *corev1.Pod, units int) { sidecarOf(pod).Command = []string{"/" + strings.Repeat("a/", units)} },
	"Words": func(pod *corev1.Pod, units int) {
		sidecarOf(pod).Command = strings.Split(strings.Repeat("a ", units), " ")
	},
	"Image": func(pod *corev1.Pod, units int) { sidecarOf(pod).Image = strings.Repeat("i", units) },
	"Variables": func(pod *corev1.Pod, units int) {
		sidecarOf(pod).Command = []string{"sh"}
		sidecarOf(pod).Env = many(units, func(i int) corev1.EnvVar { return corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: "v"} })
	},
	"RepeatedVariables": func(pod *corev1.Pod, units int) {
		sidecarOf(pod).Env = slices.Repeat([]corev1.EnvVar{
			{Name: v1alpha1.EnvTerminate, Value: "yes"}, {Name: v1alpha1.EnvTerminateWithImage, Value: "no image"},
		}, units)
	},
	"ImageVariable": func(pod *corev1.Pod, units int) {
		sidecarOf(pod).Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: strings.Repeat("i/", units)}}
	},
	"Mounts":                func(pod *corev1.Pod, units int) { mountVolumes(pod, "sh", "/usr/local/sbin/%d", units) },
	"MountsThatAreNotClean": func(pod *corev1.Pod, units int) { mountVolumes(pod, "/a/b", "a/.././/%d/", units) },
	"Conditions": func(pod *corev1.Pod, units int) {
		pod.Status.Conditions = slices.Repeat([]corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}}, units)
	},
	"Statuses": func(pod *corev1.Pod, units int) {
		running := many(units, func(i int) corev1.ContainerStatus { return podtest.Running(fmt.Sprintf("c%d", i)) })
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running...)
	},
	"Reason":         func(pod *corev1.Pod, units int) { pod.Status.Reason = strings.Repeat("r", units) },
	"ResourceClaims": func(pod *corev1.Pod, units int) { pod.Spec.ResourceClaims = make([]corev1.PodResourceClaim, units) },
	"WaitingReason": func(pod *corev1.Pod, units int) {
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: strings.Repeat("r", units)}}
	},
	"RestartRules": func(pod *corev1.Pod, units int) {
		rule := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart}
		sidecarOf(pod).RestartPolicyRules = slices.Repeat([]corev1.ContainerRestartRule{rule}, units)
	},
	"RestartRulesOfInitContainer": func(pod *corev1.Pod, units int) {
		rule := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestartAllContainers}
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "setup", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: slices.Repeat([]corev1.ContainerRestartRule{rule}, units),
		}}
	},
}

func many[T any](units int, unit func(i int) T) []T {
	all := make([]T, units)
	for i := range all {
		all[i] = unit(i)
	}
	return all
}

func numbered(units int, value string) map[string]string {
	all := map[string]string{}
	for i := range units {
		all[fmt.Sprintf("a%d", i)] = value
	}
	return all
}

func sidecarOf(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[1] }

// serve is a container with the API server's default values.
func serve(i int) corev1.Container {
	return corev1.Container{
		Name: fmt.Sprintf("c%d", i), Image: "i", TerminationMessagePath: corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}
}

func mountVolumes(pod *corev1.Pod, command, path string, count int) {
	sidecarOf(pod).Command = []string{command}
	sidecarOf(pod).VolumeMounts = many(count, func(i int) corev1.VolumeMount { return corev1.VolumeMount{Name: "v", MountPath: fmt.Sprintf(path, i)} })
}

// hostileSizes are sizes of pods in bytes of JSON, up to about the maximum of etcd.
var hostileSizes = []int{1 << 10, 10 << 10, 100 << 10, 1400 << 10}

// hostilePod is a pod whose main container is done, with the field filled up to about the size.
func hostilePod(tb testing.TB, fill func(*corev1.Pod, int), size int) *corev1.Pod {
	tb.Helper()
	build := func(units int) *corev1.Pod {
		pod := podtest.New(podtest.MainDone)
		fill(pod, units)
		return pod
	}
	const few, more = 100, 200
	fewer := sizeOf(tb, build(few))
	perUnit := float64(sizeOf(tb, build(more))-fewer) / (more - few)
	return build(max(few+int(float64(size-fewer)/perUnit), 1))
}

func sizeOf(tb testing.TB, pod *corev1.Pod) int {
	tb.Helper()
	encoded, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return len(encoded)
}

// decideOn makes the decision of a reconcile about a cached pod: as in package podinput, none about a pod that the operator ignores. Its
// policy makes every container except main a sidecar, so that each of them matters.
func decideOn(pod *corev1.Pod) plan.Decision {
	if reason, message := plan.Unprocessable(pod); reason != "" {
		return plan.Decision{Reason: reason, Message: message}
	}
	policy := podtest.Policy("mesh")
	policy.Spec.MainContainers = []v1alpha1.ContainerName{"main"}
	policy.Spec.Mode = v1alpha1.ModeImage
	resolution := resolve.Resolve(pod, []resolve.Policy{policy}, resolve.Options{Image: "quick-exit:v1"})
	return decisionAt(podtest.Noon.Add(time.Second), plan.Snapshot{Pod: pod, View: resolution.Enforced, Node: plan.NodeReal})
}

// decisionAt adds the attempts that the pod's annotation records to the snapshot, and makes the decision.
func decisionAt(now time.Time, snapshot plan.Snapshot) plan.Decision {
	attempts, err := (&image.Terminator{}).Observe(nil, snapshot.Pod) //nolint:staticcheck // It reads the pod alone.
	if err != nil {
		snapshot.InvalidAnnotation = err.Error()
	}
	snapshot.Attempts = attempts
	return plan.Next(snapshot, now)
}

// allocated returns the bytes that the function allocates, without those of other goroutines.
func allocated(do func()) int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	least := 0
	for i := range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		if bytes := int(after.TotalAlloc - before.TotalAlloc); i == 0 || bytes < least {
			least = bytes
		}
	}
	return least
}

// The results of measured functions, which the compiler must not drop.
var (
	cachedPod Pod
	decided   plan.Decision
)

// The test counts memory, because times differ on a busy machine.
func TestCostIsLinearInPodSize(t *testing.T) {
	for field, fill := range hostileFields {
		t.Run(field, func(t *testing.T) {
			perKiB := map[string][]float64{}
			for _, size := range hostileSizes {
				pod := hostilePod(t, fill, size)
				cached, err := newTestPod(t, pod).Decode()
				if err != nil {
					t.Fatal(err)
				}
				encoded, err := pod.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				actual := float64(sizeOf(t, pod)) / 1024
				decoding := allocated(func() {
					if err := cachedPod.Unmarshal(encoded); err != nil {
						t.Fatal(err)
					}
				})
				if most := 4 * size; size == 100<<10 && decoding > most {
					t.Errorf("decoding a pod of %d bytes allocates %d, want at most %d", size, decoding, most)
				}
				decision := allocated(func() { decided = decideOn(cached) })
				perKiB["decoding"] = append(perKiB["decoding"], float64(decoding)/actual)
				perKiB["decision"] = append(perKiB["decision"], float64(decision)/actual)
			}
			for of, costs := range perKiB {
				t.Logf("%s: %.0f bytes per KiB of %v bytes", of, costs, hostileSizes)
				for _, larger := range costs[1:] {
					if larger > 3*costs[0] {
						t.Errorf("%s: %.0f bytes per KiB are allocated; of a larger pod more than 3 times those of the smallest", of, costs)
						break
					}
				}
			}
		})
	}
}
