// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func preferred(s *v1alpha1.PolicySpec) { s.NativeConversion = v1alpha1.NativeConversionPreferred }

// converts adds a policy that asks for the conversion of proxy.
func converts(w *fixture) { w.policy(preferred, "proxy") }

// container returns the container of the template with the name.
func (w *fixture) container(name string) *corev1.Container {
	containers := w.Pod.Pod.Spec.Containers
	return &containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })]
}

// converted makes the template a running pod whose proxy was converted.
func converted(w *fixture) {
	w.runs(plan.NodeReal)
	proxy := *w.container("proxy")
	proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	w.Pod.Pod.Spec.InitContainers, w.Pod.Pod.Spec.Containers = []corev1.Container{proxy}, w.Pod.Pod.Spec.Containers[:1]
	w.Pod.Pod.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: "proxy=SidecarTerminationPolicy/mesh"}
}

func TestConversion(t *testing.T) {
	const would = "Note WouldConvert proxy"
	onFailure := func(limit *int32) func(*fixture) {
		return func(w *fixture) {
			converts(w)
			w.Pod.Pod.Spec.RestartPolicy, w.BackoffLimit = corev1.RestartPolicyOnFailure, limit
		}
	}
	withPorts := func(main, proxy corev1.ContainerPort) func(*fixture) {
		return func(w *fixture) {
			converts(w)
			w.container("main").Ports, w.container("proxy").Ports = []corev1.ContainerPort{main}, []corev1.ContainerPort{proxy}
		}
	}
	clash := []string{"Warning HostPortClash ", would}
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string // SEVERITY REASON CONTAINER
	}{
		"not requested": {func(w *fixture) { w.policy(asIs, "proxy") }, nil},
		"requested":     {converts, []string{would}},
		"two sidecars": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs"})
			w.policy(preferred, "proxy", "logs")
		}, []string{"Note WouldConvert "}},
		"requested by DryRun": {func(w *fixture) { w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); dryRun(s) }, "proxy") }, []string{"Warning DryRun proxy"}},
		"environment": {func(w *fixture) {
			w.container("proxy").Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
			w.NamespaceLabels = map[string]string{v1alpha1.LabelNativeEnvironment: "true"}
		}, []string{would}},
		"environment without the label": {func(w *fixture) {
			w.container("proxy").Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
		}, nil},

		"startup probe": {func(w *fixture) { converts(w); w.container("proxy").StartupProbe = &corev1.Probe{} },
			[]string{would, "Note StartupProbeDelaysMain proxy"}},
		"startup probe of main": {func(w *fixture) { converts(w); w.container("main").StartupProbe = &corev1.Probe{} }, []string{would}},
		"OnFailure":             {onFailure(ptr.To[int32](2)), []string{would, "Note SidecarRestartsCount proxy"}},
		"OnFailure, one restart is the limit": {onFailure(ptr.To[int32](1)),
			[]string{"Warning SidecarRestartsCount proxy", would}},
		"OnFailure without a Job": {onFailure(nil), []string{would}},
		"podFailurePolicy": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.Mode = v1alpha1.ModeImage }, "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
			w.FailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				ruleFor("", batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 143),
			}}
		}, []string{"Warning ImagePullRisk proxy", "Warning SidecarMatchesFailurePolicy proxy", would}},
		"default container": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "proxy"}
		}, []string{would, "Note DefaultContainerConverted proxy"}},
		"default container is main": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "main"}
		}, []string{would}},
		"same host port":            {withPorts(corev1.ContainerPort{HostPort: 80}, corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolTCP}), clash},
		"other host port":           {withPorts(corev1.ContainerPort{HostPort: 80}, corev1.ContainerPort{HostPort: 81}), []string{would}},
		"host port, other protocol": {withPorts(corev1.ContainerPort{HostPort: 80}, corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolUDP}), []string{would}},
		"host port, other address":  {withPorts(corev1.ContainerPort{HostPort: 80}, corev1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"}), []string{would}},
		"container port":            {withPorts(corev1.ContainerPort{ContainerPort: 80}, corev1.ContainerPort{ContainerPort: 80}), []string{would}},
		"host network": {func(w *fixture) {
			withPorts(corev1.ContainerPort{ContainerPort: 80}, corev1.ContainerPort{ContainerPort: 80})(w)
			w.Pod.Pod.Spec.HostNetwork = true
		}, clash},
		"host port twice in one container": {func(w *fixture) {
			converts(w)
			w.container("proxy").Ports = []corev1.ContainerPort{{HostPort: 80}, {HostPort: 80}}
		}, []string{would}},
		"bare pod":                   {func(w *fixture) { converts(w); w.Kind, w.BackoffLimit = "Pod", nil }, []string{"Warning ReapplyRejected ", would}},
		"bare pod with generateName": {func(w *fixture) { converts(w); w.Kind, w.Pod.Pod.Name = "Pod", "" }, []string{would}},

		"restartPolicy Always": {func(w *fixture) { converts(w); w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			[]string{"Problem RestartPolicyAlways "}},
		"no main container": {func(w *fixture) { w.policy(preferred, "main", "proxy") }, []string{"Problem NoMainContainer "}},
		"opted out": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Labels = map[string]string{v1alpha1.LabelNativeConversion: "false"}
		}, []string{"Note ConversionOptedOut "}},
		"annotation in the manifest": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: ""}
		}, []string{"Warning AnnotationPresent "}},
		"annotation in a manifest with a native sidecar": {func(w *fixture) {
			converted(w)
			converts(w)
			w.Template = true
		}, []string{"Warning AnnotationPresent ", "Note NativeSidecar proxy"}},
		"node name in the template": {func(w *fixture) { converts(w); w.Pod.Pod.Spec.NodeName = "node-1" }, []string{"Note NodeNameSet "}},
		"drain": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.DrainSeconds = ptr.To[int32](5) }, "proxy")
		}, []string{"Note DrainConfigured proxy"}},
		"exit code that counts": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.ExitCodes = v1alpha1.ExitCodesRespect }, "proxy")
		}, []string{"Note ExitCodesRespected proxy"}},
		"restart rules": {func(w *fixture) {
			converts(w)
			w.container("proxy").RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		}, []string{"Note RestartRules proxy"}},
		"pod for a virtual node": {func(w *fixture) { converts(w); w.Pod.Pod.Spec.SchedulerName = "eci-scheduler" }, []string{"Note VirtualNode "}},
		"mirror pod": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
		}, []string{"Note MirrorPod "}},
		"too many containers": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Spec.InitContainers = make([]corev1.Container, 127)
		}, []string{"Note PodTooLarge "}},
		"drain of one": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs"})
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.Sidecars[1].DrainSeconds = ptr.To[int32](5) }, "proxy", "logs")
		}, []string{"Note DrainConfigured logs", would}},

		"pod that was converted":                   {func(w *fixture) { converted(w); converts(w) }, []string{"Note ConvertedToNative proxy"}},
		"pod that was converted, without a policy": {converted, []string{"Note ConvertedToNative proxy"}},
		"pod that was converted, and opted out later": {func(w *fixture) {
			converted(w)
			converts(w)
			w.NamespaceLabels = map[string]string{v1alpha1.LabelNativeConversion: "false"}
		}, []string{"Note ConvertedToNative proxy"}},
		"finished pod that was converted": {func(w *fixture) {
			converted(w)
			converts(w)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
		}, []string{"Note ConvertedToNative proxy"}},
		"pod with a native sidecar of its own": {func(w *fixture) {
			converted(w)
			converts(w)
			w.Pod.Pod.Annotations = nil
		}, []string{"Note NativeSidecar proxy"}},
		"pod that was not converted": {func(w *fixture) { w.runs(plan.NodeReal); converts(w) }, []string{"Note NotConverted proxy"}},
		"pod whose conversion was left": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			w.Pod.Pod.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: "?proxy=x"}
		}, []string{"Note NotConverted proxy"}},
		"pod whose template names a node": {func(w *fixture) { w.runs(plan.NodeReal); converts(w); w.NamesNode = true },
			[]string{"Note NodeNameSet "}},
		"pod with one converted sidecar": {func(w *fixture) {
			converted(w)
			w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs"})
			w.policy(preferred, "proxy", "logs")
		}, []string{"Note ConvertedToNative proxy", "Note NotConverted logs"}},
		"finished pod that was not converted": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			var got []string
			for _, f := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings {
				got = append(got, strings.Join([]string{string(f.Severity), string(f.Reason), f.Container}, " "))
				if f.Hint == "" {
					t.Errorf("finding without a hint: %+v", f)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestConversionMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string
	}{
		"who converts, and when it stops": {func(w *fixture) {
			converts(w)
			w.Pod.Pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](90)
		}, []string{"proxy (by SidecarTerminationPolicy/p0)", "grace period of 1m30s"}},
		"startup probe with defaults": {func(w *fixture) { converts(w); w.container("proxy").StartupProbe = &corev1.Probe{} }, []string{"may fail for 30s"}},
		"startup probe": {func(w *fixture) {
			converts(w)
			w.container("proxy").StartupProbe = &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 2, FailureThreshold: 30}
		}, []string{"may fail for 1m5s"}},
		"pod older than the policy": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			w.Pod.Pod.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour))
		}, []string{"the pod is older than the policy"}},
		"pod younger than one policy": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			converts(w)
			w.Policies[0].Created, w.Policies[1].Created = noon, noon.Add(-2*time.Hour)
			w.Pod.Pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		}, []string{"created before that, or the cluster cannot convert"}},
		"webhook added a virtual node's toleration": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			w.Pod.Pod.Spec.Tolerations = []corev1.Toleration{{Key: "virtual-kubelet.io/provider"}}
		}, []string{"not converted to a native sidecar: the pod is meant for a virtual node"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			var messages []string
			for _, f := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings {
				messages = append(messages, f.Message)
			}
			got := strings.Join(messages, "\n")
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no message has %q:\n%s", want, got)
				}
			}
		})
	}
}

func TestConvertedContainerSaysWho(t *testing.T) {
	w := newFixture()
	converted(w)
	containers := explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers
	if got := containers[0]; got.Role != explain.RoleNativeSidecar || got.ConvertedBy != "SidecarTerminationPolicy/mesh" {
		t.Errorf("got %+v", got)
	}
}
