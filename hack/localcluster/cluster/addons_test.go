// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
)

func TestRedirect(t *testing.T) {
	own := addons.Webhook{Service: "hooks", Port: 21500}
	for name, test := range map[string]struct {
		webhook      addons.Webhook
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
		"own certificates": {
			addons.Webhook{Service: "hooks", Port: 21500, OwnCertificates: true},
			"{kind: ValidatingWebhookConfiguration, webhooks: [{clientConfig: {service: {name: hooks}}}]}",
			"{kind: ValidatingWebhookConfiguration, webhooks: [{clientConfig: {service: {name: hooks, port: 21500}}}]}",
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
