// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/settings"
)

func TestNetworkPolicyLimitsMetricsPort(t *testing.T) {
	const none, limits = "OK no NetworkPolicy limits who can connect to the metrics port 8443",
		"OK a NetworkPolicy limits who can connect to the metrics port 8443, if the network plugin enforces it"
	for name, tc := range map[string]struct {
		policies []string // specs
		want     string
	}{
		"no policy":             {nil, none},
		"deny all":              {[]string{`{podSelector: {}, policyTypes: [Ingress]}`}, limits},
		"other pods":            {[]string{`{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress]}`}, none},
		"egress only":           {[]string{`{podSelector: {}, policyTypes: [Egress]}`}, none},
		"one namespace":         {[]string{`{podSelector: {matchLabels: {app: operator}}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {metrics: enabled}}}]}]}`}, limits},
		"everyone":              {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`}, none},
		"another port":          {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: health}, {port: 8081}]}]}`}, limits},
		"port by number":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8443}]}]}`}, none},
		"port by name":          {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: metrics}]}]}`}, none},
		"range of ports":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8000, endPort: 9000}]}]}`}, none},
		"range below":           {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8000, endPort: 8442}]}]}`}, limits},
		"every TCP port":        {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: TCP}]}]}`}, none},
		"another protocol":      {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP}]}]}`}, limits},
		"deny all and everyone": {[]string{`{podSelector: {}, policyTypes: [Ingress]}`, `{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`}, none},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for i, spec := range tc.policies {
				policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: settings.Namespace, Name: string(rune('a' + i))}}
				if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
					t.Fatal(err)
				}
				objects = append(objects, policy)
			}
			objects = append(objects, &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "deny-all"},
				Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
			})
			c := newChecker(t, []string{"--metrics-bind-address=:8443"}, objects...)
			c.deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: settings.Namespace}}
			c.deployment.Spec.Template.Labels = map[string]string{"app": "operator"}
			c.deployment.Spec.Template.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443}, {Name: "health", ContainerPort: 8081}}}}
			requireResults(t, name, c, (*checker).checkMetricsNetwork, tc.want)
			if hinted := c.results[0].Hint != ""; hinted != (tc.want == none) {
				t.Errorf("the hint is %q", c.results[0].Hint)
			}
		})
	}
}

func TestMetricsNetworkMattersForOtherHosts(t *testing.T) {
	for address, want := range map[string]bool{":8443": true, "0.0.0.0:8443": true, "[::]:8443": true, "127.0.0.1:8443": false, "[::1]:8443": false, "localhost:8443": false, "0": false} {
		c := newChecker(t, []string{"--metrics-bind-address=" + address})
		c.deployment = &appsv1.Deployment{}
		if got := c.servesMetrics(); got != want {
			t.Errorf("%s: got %t", address, got)
		}
	}
}
