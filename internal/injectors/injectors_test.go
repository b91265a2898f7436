// SPDX-License-Identifier: Apache-2.0

package injectors_test

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/injectors"
)

type pairs = map[string]string

func TestPredict(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, annotations                   pairs
		namespaceLabels, namespaceAnnotations pairs
		change                                func(*corev1.PodSpec)
		want                                  []string // CONTAINER, and native or regular if the pod says so
	}{
		"no mark": {},

		"Istio, label wins over annotation": {
			labels: pairs{"sidecar.istio.io/inject": "false"}, annotations: pairs{"sidecar.istio.io/inject": "true"},
		},
		"Istio, annotation":               {annotations: pairs{"sidecar.istio.io/inject": "True"}, want: []string{"istio-proxy"}},
		"Istio, annotation opts out":      {annotations: pairs{"sidecar.istio.io/inject": "false"}, namespaceLabels: pairs{"istio-injection": "enabled"}},
		"Istio, revision of the pod":      {labels: pairs{"istio.io/rev": "canary"}, want: []string{"istio-proxy"}},
		"Istio, other value of namespace": {namespaceLabels: pairs{"istio-injection": "maybe"}, labels: pairs{"istio.io/rev": "canary"}},
		"Istio, native": {
			labels: pairs{"sidecar.istio.io/inject": "yes"}, annotations: pairs{"sidecar.istio.io/nativeSidecar": "true"}, want: []string{"istio-proxy native"},
		},
		"Istio, pod has it": {
			labels: pairs{"sidecar.istio.io/inject": "true"},
			change: func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{{Name: "istio-proxy"}} },
		},
		"Linkerd, pod opts out":         {annotations: pairs{"linkerd.io/inject": "disabled"}, namespaceAnnotations: pairs{"linkerd.io/inject": "enabled"}},
		"Linkerd, unknown value":        {annotations: pairs{"linkerd.io/inject": "true"}},
		"Linkerd, label does not count": {labels: pairs{"linkerd.io/inject": "enabled"}},
		"Linkerd, host network": {
			annotations: pairs{"linkerd.io/inject": "enabled"}, change: func(s *corev1.PodSpec) { s.HostNetwork = true },
		},
		"Linkerd, regular for the pod, native for the namespace": {
			annotations:          pairs{"linkerd.io/inject": "enabled", "config.linkerd.io/proxy-enable-native-sidecar": "false"},
			namespaceAnnotations: pairs{"config.beta.linkerd.io/proxy-enable-native-sidecar": "true"},
			want:                 []string{"linkerd-proxy regular"},
		},
		"Dapr, native annotation of the namespace does not count": {
			annotations: pairs{"dapr.io/enabled": "yes"}, namespaceAnnotations: pairs{"dapr.io/enable-native-sidecar": "true"}, want: []string{"daprd"},
		},
		"Vault, pre-populate-only false": {
			annotations: pairs{"vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/agent-pre-populate-only": "false"}, want: []string{"vault-agent"},
		},
		"Cloud SQL, two workloads": {
			annotations: pairs{"cloudsql.cloud.google.com/b": "1,image", "cloudsql.cloud.google.com/a": "1,image", "cloudsql.cloud.google.com/": "1"},
			want:        []string{"csql-batch-a", "csql-batch-b"},
		},
		"OpenTelemetry, pod asks and namespace opts out": {
			annotations: pairs{"sidecar.opentelemetry.io/inject": "true"}, namespaceAnnotations: pairs{"sidecar.opentelemetry.io/inject": "false"}, want: []string{"otc-container"},
		},
		"several injectors": {
			annotations: pairs{"dapr.io/enabled": "true", "consul.hashicorp.com/connect-inject": "true", "gke-gcsfuse/volumes": "True"},
			want:        []string{"consul-dataplane", "daprd", "gke-gcsfuse-sidecar"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Labels: tc.labels, Annotations: tc.annotations},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
			}
			if tc.change != nil {
				tc.change(&pod.Spec)
			}
			var got []string
			for _, sidecar := range injectors.Predict(pod, injectors.Metadata{Labels: tc.namespaceLabels, Annotations: tc.namespaceAnnotations}) {
				text := sidecar.Container
				if sidecar.Native != nil {
					text += map[bool]string{true: " native", false: " regular"}[*sidecar.Native]
				}
				got = append(got, text)
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sidecars differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTableIsComplete(t *testing.T) {
	if !slices.IsSortedFunc(injectors.All, func(a, b injectors.Injector) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Error("the injectors are not sorted by name")
	}
	for _, injector := range injectors.All {
		if injector.Container == "" || len(injector.Marks) == 0 || !strings.HasPrefix(injector.Source, "https://") {
			t.Errorf("%s has no container, mark or source", injector.Name)
		}
		if (injector.Native.Since == "") != (injector.Native.Kubernetes == "") {
			t.Errorf("%s: a default needs both versions", injector.Name)
		}
		if injector.Preset == "" {
			continue
		}
		data, err := os.ReadFile("../../config/presets/" + injector.Preset + "/policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var policy v1alpha1.SidecarTerminationPolicy
		if err := yaml.Unmarshal(data, &policy); err != nil || policy.Spec.Sidecars[0].Name != injector.Container {
			t.Errorf("preset %s declares %v, want %s: %v", injector.Preset, policy.Spec.Sidecars, injector.Container, err)
		}
	}
}
