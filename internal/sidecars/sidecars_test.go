// SPDX-License-Identifier: Apache-2.0

package sidecars_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

var update = flag.Bool("update", false, "write the table of the document")

type pairs = map[string]string

func TestPredict(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, annotations                   pairs
		namespaceLabels, namespaceAnnotations pairs
		change                                func(*corev1.PodSpec)
		want                                  []string // CONTAINER, and native or regular if the pod says so
	}{
		"no trigger": {},

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
			for _, injection := range sidecars.Predict(pod, &metav1.ObjectMeta{Labels: tc.namespaceLabels, Annotations: tc.namespaceAnnotations}) {
				text := injection.Container
				if injection.IsNative != nil {
					text += map[bool]string{true: " native", false: " regular"}[*injection.IsNative]
				}
				got = append(got, text)
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sidecars differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaysNameTheOldestVersion(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: pairs{"dapr.io/enabled": "true"}}}
	want := []string{"set annotation dapr.io/enable-native-sidecar=true on the pod (Dapr 1.18 or later)"}
	if diff := gocmp.Diff(want, sidecars.Predict(pod, &metav1.ObjectMeta{})[0].Ways()); diff != "" {
		t.Errorf("ways differ (-want +got):\n%s", diff)
	}
}

func TestKnownBy(t *testing.T) {
	for name, tc := range map[string]struct{ container, image, want string }{
		"name":                  {"istio-proxy", "app", "name istio-proxy"},
		"name of an injector":   {"datadog-agent-injected", "app", "name datadog-agent-injected"},
		"name with a pattern":   {"csql-batch-orders", "app", "name csql-batch-orders"},
		"part of a pattern":     {"csql-orders", "app", ""},
		"image":                 {"logs", "registry.example:5000/team/fluent-bit:4.0", "image fluent-bit"},
		"image with digest":     {"logs", "vector@sha256:0123", "image vector"},
		"image without a tag":   {"mesh", "registry.example:5000/kuma-dp", "image kuma-dp"},
		"repository's registry": {"main", "envoy/app:v1", ""},
		"names of AWS":          {"collector", "amazon/aws-otel-collector:latest", "image aws-otel-collector"},
		"name of a tunnel":      {"ts-sidecar", "app", "name ts-sidecar"},
		"neither":               {"main", "app", ""},
		"hostile":               {"csql-" + strings.Repeat("/", 1<<20), strings.Repeat("/", 1<<20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sidecars.KnownBy(&corev1.Container{Name: tc.container, Image: tc.image}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTableIsConsistent(t *testing.T) {
	first := func(a, b sidecars.Sidecar) int { return cmp.Compare(a.Containers[0], b.Containers[0]) }
	if !slices.IsSortedFunc(sidecars.Table, first) {
		t.Error("the table is not sorted by its first containers")
	}
	seen := map[string]bool{}
	for _, sidecar := range sidecars.Table {
		for _, name := range slices.Concat(sidecar.Containers, sidecar.Images) {
			name = strings.NewReplacer("{namespace}", "batch", "{name}", "orders").Replace(name)
			if sidecars.KnownBy(&corev1.Container{Name: name}) == "" && sidecars.KnownBy(&corev1.Container{Image: name}) == "" {
				t.Errorf("%s is not known", name)
			}
		}
		for _, name := range sidecar.Containers {
			if seen[name] {
				t.Errorf("two sidecars are named %s", name)
			}
			seen[name] = true
		}
		if (sidecar.Injector == "") != (len(sidecar.Triggers) == 0) {
			t.Errorf("%s has an injector or triggers, not both", sidecar.Containers[0])
		}
		if _, err := time.Parse("2006-01", sidecar.Date); err != nil || !strings.HasPrefix(sidecar.Page, "https://") {
			t.Errorf("%s has page %q and date %q, want a URL and a month", sidecar.Containers[0], sidecar.Page, sidecar.Date)
		}
		if (sidecar.Native.Since == "") != (sidecar.Native.Kubernetes == "") {
			t.Errorf("%s: a default needs both versions", sidecar.Containers[0])
		}
	}
}

// The document shows the table. Run with -update to rewrite it.
func TestDocumentShowsTable(t *testing.T) {
	const file, head = "../../docs/cli/lint.md", "| container | added by | ends without a policy |\n|---|---|---|\n"
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(document), head)
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table of sidecars", file)
	}
	want := before + head + documented() + "\n" + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := gocmp.Diff(want, string(document)); diff != "" {
		t.Errorf("run this test with -update and review the difference (-want +got):\n%s", diff)
	}
}

// documented returns the table as rows of Markdown. What nothing injects or ends shares the last row.
func documented() string {
	var rows strings.Builder
	var others []string
	code := func(all []string) string { return "`" + strings.Join(all, "`, `") + "`" }
	for i := range sidecars.Table {
		s := &sidecars.Table[i]
		known := code(s.Containers)
		if images := slices.DeleteFunc(slices.Clone(s.Images), func(image string) bool { return slices.Contains(s.Containers, image) }); len(images) > 0 {
			known += "; image " + code(images)
		}
		known = fmt.Sprintf("[%s](%s)", known, s.Page)
		if s.Injector == "" && withoutPolicy(s) == "" {
			others = append(others, known)
			continue
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", known, s.Injector, withoutPolicy(s))
	}
	fmt.Fprintf(&rows, "| %s | | |\n", strings.Join(others, "; "))
	return rows.String()
}

// withoutPolicy says what ends the sidecar without a policy.
func withoutPolicy(s *sidecars.Sidecar) string {
	var ways []string
	if s.EndedBy != "" {
		ways = append(ways, s.EndedBy+" ends it")
	}
	if s.Native.Since != "" {
		ways = append(ways, fmt.Sprintf("native from %s on, with Kubernetes %s", s.Native.Since, s.Native.Kubernetes))
	}
	if len(s.Native.Annotations) > 0 {
		way := "native with `" + s.Native.Annotations[0] + "`"
		if since := s.Native.AnnotationsSince; since != "" {
			way += " from " + since + " on"
		}
		ways = append(ways, way)
	}
	if s.Native.Setting != "" {
		ways = append(ways, "native with "+s.Native.Setting)
	}
	return strings.Join(ways, "; ")
}

// A preset for one sidecar is that of its entry. A preset for a tool lists known sidecars, or main containers, which are none.
func TestPresetsAreOfKnownSidecars(t *testing.T) {
	files, err := filepath.Glob("../../config/presets/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no presets: %v", err)
	}
	presets := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var policy v1alpha1.ClusterSidecarTerminationPolicy // has every field of the namespaced kind
		if err := yaml.Unmarshal(data, &policy); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, sidecar := range policy.Spec.Sidecars {
			names = append(names, sidecar.Name)
			if sidecars.KnownBy(&corev1.Container{Name: sidecar.Name}) == "" {
				t.Errorf("%s: sidecar %s is not known", file, sidecar.Name)
			}
		}
		for _, main := range policy.Spec.MainContainers {
			if sidecars.KnownBy(&corev1.Container{Name: string(main)}) != "" {
				t.Errorf("%s: main container %s is known as a sidecar", file, main)
			}
		}
		preset := filepath.Base(filepath.Dir(file))
		i := slices.IndexFunc(sidecars.Table, func(s sidecars.Sidecar) bool { return s.Preset == preset })
		switch {
		case i >= 0 && !slices.Equal(names, sidecars.Table[i].Containers[:1]):
			t.Errorf("preset %s declares %v, want %s", preset, names, sidecars.Table[i].Containers[0])
		case i < 0 && policy.Kind == "SidecarTerminationPolicy":
			t.Errorf("no sidecar of the table has preset %s", preset)
		case i >= 0:
			presets++
		}
	}
	if want := len(slices.DeleteFunc(slices.Clone(sidecars.Table), func(s sidecars.Sidecar) bool { return s.Preset == "" })); presets != want {
		t.Errorf("%d presets of the table exist, want %d", presets, want)
	}
}
