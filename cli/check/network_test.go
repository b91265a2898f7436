// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func TestNetworkPolicyRestrictsPort(t *testing.T) {
	deployment := &appsv1.Deployment{}
	deployment.Spec.Template.Labels = map[string]string{"app": "operator"}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443}, {Name: "health", ContainerPort: 8081}}}}
	for name, tc := range map[string]struct {
		policies []string // specs
		want     bool
	}{
		"no policy":             {nil, false},
		"deny all":              {[]string{`{podSelector: {}, policyTypes: [Ingress]}`}, true},
		"other pods":            {[]string{`{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress]}`}, false},
		"egress only":           {[]string{`{podSelector: {}, policyTypes: [Egress]}`}, false},
		"one namespace":         {[]string{`{podSelector: {matchLabels: {app: operator}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {metrics: enabled}}}]}]}`}, true},
		"everyone":              {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`}, false},
		"another port":          {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: health}, {port: 8081}]}]}`}, true},
		"port by number":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8443}]}]}`}, false},
		"port by name":          {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: metrics}]}]}`}, false},
		"range of ports":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8000, endPort: 9000}]}]}`}, false},
		"range below":           {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8000, endPort: 8442}]}]}`}, true},
		"every TCP port":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: TCP}]}]}`}, false},
		"another protocol":      {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP}]}]}`}, true},
		"deny all and everyone": {[]string{`{podSelector: {}, policyTypes: [Ingress]}`, `{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`}, false},
	} {
		var policies []networkingv1.NetworkPolicy
		for _, spec := range tc.policies {
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
				t.Fatal(err)
			}
			policies = append(policies, policy)
		}
		if got := restrictsPort(policies, deployment, "8443"); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestMetricsNetworkMattersForOtherHosts(t *testing.T) {
	for address, want := range map[string]bool{":8443": true, "0.0.0.0:8443": true, "[::]:8443": true, "127.0.0.1:8443": false, "[::1]:8443": false, "localhost:8443": false, "0": false} {
		if got := newChecker(t, "--metrics-bind-address="+address).servesMetrics(); got != want {
			t.Errorf("%s: got %t", address, got)
		}
	}
}
