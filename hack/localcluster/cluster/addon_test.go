// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestParseAddons(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "kruise,virtual-node",
		" jobset ,,jobset": "jobset,kruise,virtual-node",
		"jobset,all":       strings.Join(knownNames(), ","),
		"none":             "",
	} {
		names, err := parseAddons(text)
		if got := strings.Join(names, ","); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"jobset,volcano", "jobset,none"} {
		if _, err := parseAddons(text); err == nil || !strings.Contains(err.Error(), ": choose from argo, jobset") {
			t.Errorf("the error for %q is %v", text, err)
		}
	}
}

func TestRedirect(t *testing.T) {
	own := Webhook{Service: "hooks", Port: 21500}
	for name, test := range map[string]struct {
		webhook      Webhook
		object, want string
	}{
		"service": {
			own,
			"{kind: Service, metadata: {name: hooks}, spec: {selector: {a: b}, ports: [{port: 443}]}}",
			"{kind: Service, metadata: {name: hooks}, spec: {type: ExternalName, externalName: 127.0.0.1}}",
		},
		"other service": {
			own,
			"{kind: Service, metadata: {name: metrics}, spec: {ports: [{port: 443}]}}",
			"{kind: Service, metadata: {name: metrics}, spec: {ports: [{port: 443}]}}",
		},
		"webhooks": {
			own,
			"{kind: MutatingWebhookConfiguration, webhooks: [{clientConfig: {service: {name: hooks, path: /a}}}, {clientConfig: {service: {name: others}}}]}",
			"{kind: MutatingWebhookConfiguration, webhooks: [{clientConfig: {caBundle: Y2E=, service: {name: hooks, path: /a, port: 21500}}}, {clientConfig: {service: {name: others}}}]}",
		},
		"conversion": {
			own,
			"{kind: CustomResourceDefinition, spec: {conversion: {webhook: {clientConfig: {service: {name: hooks}}}}}}",
			"{kind: CustomResourceDefinition, spec: {conversion: {webhook: {clientConfig: {caBundle: Y2E=, service: {name: hooks, port: 21500}}}}}}",
		},
		"no conversion": {
			own,
			"{kind: CustomResourceDefinition, spec: {conversion: {strategy: None}}}",
			"{kind: CustomResourceDefinition, spec: {conversion: {strategy: None}}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object, want := parse(t, test.object), parse(t, test.want)
			redirect(object, test.webhook, []byte("ca"))
			if diff := cmp.Diff(want, object); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return object
}
