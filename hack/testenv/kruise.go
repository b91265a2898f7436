// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Kruise simulates the parts of OpenKruise that the operator depends on: the CRDs of ContainerRecreateRequests and ImagePullJobs,
// and the webhook that binds each CRR to its pod and sets defaults of pull jobs. Nothing processes the objects.
type Kruise struct {
	client        client.Client
	definitions   []*apiextensionsv1.CustomResourceDefinition
	configuration *registrationv1.MutatingWebhookConfiguration
	denials       sync.Map // messages by namespace and resource
}

// NewKruise starts the webhook's server until the test ends, and installs nothing. The client's scheme must have core,
// admissionregistration and apiextensions types.
func NewKruise(t *testing.T, c client.Client) *Kruise {
	t.Helper()
	k := &Kruise{client: c, definitions: definitions(t, "containerrecreaterequests", "imagepulljobs")}
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(k.admit)})
	t.Cleanup(server.Close)
	k.configuration = &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name: "mkruise.kb.io",
			ClientConfig: registrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			SideEffects:             ptr.To(registrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule: registrationv1.Rule{
					APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1"},
					Resources: []string{"containerrecreaterequests", "imagepulljobs"},
				},
			}},
		}},
	}
	return k
}

// objects are the objects to install.
func (k *Kruise) objects() []client.Object {
	objects := []client.Object{k.configuration.DeepCopy()}
	for _, definition := range k.definitions {
		objects = append(objects, definition.DeepCopy())
	}
	return objects
}

// Install installs all objects unless they exist. The test that has installed them removes them when it ends: its subtests, which may
// run in parallel, share them.
func (k *Kruise) Install(t *testing.T) {
	t.Helper()
	installs := false
	for _, object := range k.objects() {
		err := k.client.Create(t.Context(), object)
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatalf("install OpenKruise: %v", err)
		}
		installs = installs || err == nil
	}
	if installs {
		t.Cleanup(func() { k.Remove(t) })
	}
	for _, definition := range k.definitions {
		Eventually(t, definition.Name+" are served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: definition.Spec.Group, Version: "v1alpha1", Kind: definition.Spec.Names.ListKind})
			return k.client.List(ctx, list)
		})
	}
}

// Remove removes all objects if they exist, including CRRs and pull jobs.
func (k *Kruise) Remove(t *testing.T) {
	t.Helper()
	// In cleanups, the test's context has ended.
	ctx := context.WithoutCancel(t.Context())
	for _, object := range k.objects() {
		if err := client.IgnoreNotFound(k.client.Delete(ctx, object)); err != nil {
			t.Errorf("remove OpenKruise: %v", err)
		}
	}
	for _, definition := range k.definitions {
		Eventually(t, definition.Name+" have gone", func(ctx context.Context) error {
			err := k.client.Get(ctx, client.ObjectKeyFromObject(definition), definition.DeepCopy())
			if err == nil {
				return errors.New("the CRD still exists")
			}
			return client.IgnoreNotFound(err)
		})
	}
}

// RemoveWebhook removes the webhook's configuration only, as an upgrade may do temporarily.
func (k *Kruise) RemoveWebhook(t *testing.T) {
	t.Helper()
	if err := k.client.Delete(t.Context(), k.configuration.DeepCopy()); err != nil {
		t.Fatalf("remove the webhook of OpenKruise: %v", err)
	}
}

// Deny makes the webhook deny all objects of the resource in the namespace with the message, as OpenKruise does if a feature gate is off.
// An empty message admits them again.
func (k *Kruise) Deny(resource, namespace, message string) {
	k.denials.Store(client.ObjectKey{Namespace: namespace, Name: resource}, message)
}

// admit denies the objects that the test wants to be denied, and completes the others when they are created.
func (k *Kruise) admit(ctx context.Context, request admission.Request) admission.Response {
	resource := request.Resource.Resource
	if message, _ := k.denials.Load(client.ObjectKey{Namespace: request.Namespace, Name: resource}); message != nil && message != "" {
		return admission.Denied(message.(string))
	}
	if request.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	object := &unstructured.Unstructured{}
	err := object.UnmarshalJSON(request.Object.Raw)
	switch {
	case err != nil:
	case resource == "imagepulljobs":
		err = setDefaults(object)
	default:
		err = k.bind(ctx, object)
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	completed, err := object.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, completed)
}

// setDefaults sets defaults of a new pull job.
func setDefaults(job *unstructured.Unstructured) error {
	return errors.Join(
		unstructured.SetNestedMap(job.Object, map[string]any{"timeoutSeconds": int64(600), "backoffLimit": int64(3)}, "spec", "pullPolicy"),
		unstructured.SetNestedField(job.Object, "IfNotPresent", "spec", "imagePullPolicy"),
	)
}

// bind labels the CRR with its pod's UID and records each container's state. Like OpenKruise, it rejects containers that have
// never started.
func (k *Kruise) bind(ctx context.Context, crr *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(crr.Object, "spec", "podName")
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: crr.GetNamespace(), Name: name}, pod); err != nil {
		return err
	}
	labels := crr.GetLabels()
	labels["crr.apps.kruise.io/pod-uid"] = string(pod.UID)
	labels["crr.apps.kruise.io/node-name"] = pod.Spec.NodeName
	labels["crr.apps.kruise.io/active"] = "true"
	crr.SetLabels(labels)
	containers, _, err := unstructured.NestedSlice(crr.Object, "spec", "containers")
	if err != nil {
		return err
	}
	for _, one := range containers {
		container := one.(map[string]any)
		i := slices.IndexFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
			return status.Name == container["name"] && status.ContainerID != ""
		})
		if i < 0 {
			return fmt.Errorf("container %s has not been started", container["name"])
		}
		status := pod.Status.ContainerStatuses[i]
		container["statusContext"] = map[string]any{"containerID": status.ContainerID, "restartCount": int64(status.RestartCount)}
	}
	return unstructured.SetNestedSlice(crr.Object, containers, "spec", "containers")
}

// definitions reads CRDs from OpenKruise's release, which it downloads to the module cache if necessary.
func definitions(t *testing.T, names ...string) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	repository, err := layout.Repository()
	if err != nil {
		t.Fatal(err)
	}
	builder := toolchain.Builder{Modules: filepath.Join(repository, "hack", "tools")}
	source, err := builder.Source(t.Context(), toolchain.Tool{Name: "kruise-v1.8.3", Source: "github.com/openkruise/kruise"})
	if err != nil {
		t.Fatal(err)
	}
	options := &envtest.CRDInstallOptions{ErrorIfPathMissing: true}
	for _, name := range names {
		options.Paths = append(options.Paths, filepath.Join(source, "config/crd/bases/apps.kruise.io_"+name+".yaml"))
	}
	if err := envtest.ReadCRDFiles(options); err != nil {
		t.Fatalf("read the definitions of OpenKruise: %v", err)
	}
	return options.CRDs
}
