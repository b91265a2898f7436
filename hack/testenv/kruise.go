// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// kruiseVersion is the release of the CRDs.
const kruiseVersion = "v1.8.3"

// Kruise simulates the parts of OpenKruise that the operator depends on: the CRDs of ContainerRecreateRequests and ImagePullJobs,
// and the webhook that binds each CRR to its pod and sets defaults of pull jobs. Nothing processes the objects.
type Kruise struct {
	client        client.Client
	definitions   []*apiextensionsv1.CustomResourceDefinition
	configuration *registrationv1.MutatingWebhookConfiguration
	installed     bool
	denial        atomic.Int32
	deniedIn      sync.Map // codes by namespace
	jobDenial     atomic.Pointer[string]
}

// NewKruise starts the webhook's server until the test ends, and installs nothing. The client's scheme must have core,
// admissionregistration and apiextensions types.
func NewKruise(t *testing.T, c client.Client) *Kruise {
	t.Helper()
	k := &Kruise{client: c, definitions: definitions(t, "containerrecreaterequests", "imagepulljobs")}
	serving := &envtest.WebhookInstallOptions{}
	if err := serving.PrepWithoutInstalling(); err != nil {
		t.Fatalf("create certificates of the webhook: %v", err)
	}
	t.Cleanup(func() { _ = serving.Cleanup() })
	address := net.JoinHostPort(serving.LocalServingHost, strconv.Itoa(serving.LocalServingPort))
	server := &http.Server{Addr: address, Handler: k, ReadHeaderTimeout: time.Minute}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("serve the webhook: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		directory := serving.LocalServingCertDir
		_ = server.ServeTLS(listener, filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	k.configuration = webhookConfiguration("https://"+address+"/", serving.LocalServingCAData)
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

// Install installs all objects unless they exist, and removes them when the test ends.
func (k *Kruise) Install(t *testing.T) {
	t.Helper()
	if k.installed {
		return
	}
	k.installed = true
	for _, object := range k.objects() {
		if err := k.client.Create(t.Context(), object); err != nil {
			t.Fatalf("install OpenKruise: %v", err)
		}
	}
	for _, definition := range k.definitions {
		Eventually(t, definition.Name+" are served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: definition.Spec.Group, Version: "v1alpha1", Kind: definition.Spec.Names.ListKind})
			return k.client.List(ctx, list)
		})
	}
	t.Cleanup(func() { k.Remove(t) })
}

// Remove removes all objects if they exist, including CRRs and pull jobs.
func (k *Kruise) Remove(t *testing.T) {
	t.Helper()
	k.installed = false
	// In cleanups, the test's context has ended.
	ctx := context.WithoutCancel(t.Context())
	for _, object := range k.objects() {
		if err := client.IgnoreNotFound(k.client.Delete(ctx, object)); err != nil {
			t.Errorf("remove OpenKruise: %v", err)
		}
	}
	for _, definition := range k.definitions {
		Eventually(t, definition.Name+" have gone", func(ctx context.Context) error {
			err := k.client.Get(ctx, client.ObjectKeyFromObject(definition), &apiextensionsv1.CustomResourceDefinition{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			return errors.New("the CRD still exists")
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

// Deny makes the webhook deny all CRRs with the code. Code 0 admits them again.
func (k *Kruise) Deny(code int32) {
	k.denial.Store(code)
}

// DenyIn makes the webhook deny all CRRs of the namespace with the status code.
func (k *Kruise) DenyIn(namespace string, code int32) {
	k.deniedIn.Store(namespace, code)
}

// denialOf returns the code for CRRs of the namespace, or 0 if they are admitted.
func (k *Kruise) denialOf(namespace string) int32 {
	if code, ok := k.deniedIn.Load(namespace); ok {
		return code.(int32)
	}
	return k.denial.Load()
}

// DenyJobs makes the webhook deny all ImagePullJobs with the message, as OpenKruise does if the feature gate is off. An empty
// message admits them again.
func (k *Kruise) DenyJobs(message string) {
	k.jobDenial.Store(&message)
}

// ServeHTTP handles admission reviews.
func (k *Kruise) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch code := k.denialOf(review.Request.Namespace); {
	case review.Request.Resource.Resource == "imagepulljobs":
		k.admitJob(review.Request, response)
	case code != 0:
		response.Allowed, response.Result = false, &metav1.Status{Code: code, Message: "denied by the test"}
	case review.Request.Operation == admissionv1.Create:
		patch, err := k.bind(r.Context(), review.Request)
		if err != nil {
			response.Allowed, response.Result = false, &metav1.Status{Code: http.StatusBadRequest, Message: err.Error()}
			break
		}
		response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// admitJob sets defaults of a new job.
func (k *Kruise) admitJob(admission *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
	if message := k.jobDenial.Load(); message != nil && *message != "" {
		response.Allowed, response.Result = false, &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: *message}
		return
	}
	if admission.Operation == admissionv1.Create {
		response.Patch = []byte(`[{"op": "add", "path": "/spec/pullPolicy", "value": {"timeoutSeconds": 600, "backoffLimit": 3}},
			{"op": "add", "path": "/spec/imagePullPolicy", "value": "IfNotPresent"}]`)
		response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
}

// request contains the fields of a CRR that the webhook reads.
type request struct {
	Spec struct {
		PodName    string `json:"podName"`
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// bind labels the CRR with its pod's UID and records each container's state. Like OpenKruise, it rejects containers that have
// never started.
func (k *Kruise) bind(ctx context.Context, admission *admissionv1.AdmissionRequest) ([]byte, error) {
	var r request
	if err := json.Unmarshal(admission.Object.Raw, &r); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, types.NamespacedName{Namespace: admission.Namespace, Name: r.Spec.PodName}, pod); err != nil {
		return nil, err
	}
	const labels = "/metadata/labels/crr.apps.kruise.io~1"
	patch := []operation{
		{"add", labels + "pod-uid", pod.UID}, {"add", labels + "node-name", pod.Spec.NodeName}, {"add", labels + "active", "true"},
	}
	for i, container := range r.Spec.Containers {
		started := false
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == container.Name && status.ContainerID != "" {
				started = true
				patch = append(patch, operation{"add", fmt.Sprintf("/spec/containers/%d/statusContext", i),
					map[string]any{"containerID": status.ContainerID, "restartCount": status.RestartCount}})
			}
		}
		if !started {
			return nil, fmt.Errorf("container %s has not been started", container.Name)
		}
	}
	return json.Marshal(patch)
}

func webhookConfiguration(url string, authority []byte) *registrationv1.MutatingWebhookConfiguration {
	configuration := &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}}
	for _, kind := range []string{"containerrecreaterequest", "imagepulljob"} {
		configuration.Webhooks = append(configuration.Webhooks, registrationv1.MutatingWebhook{
			Name:                    "m" + kind + ".kb.io",
			ClientConfig:            registrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			FailurePolicy:           ptr.To(registrationv1.Fail),
			SideEffects:             ptr.To(registrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule: registrationv1.Rule{
					APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{kind + "s"},
				},
			}},
		})
	}
	return configuration
}

// definitions reads CRDs from OpenKruise's release, which it downloads to the module cache if necessary.
func definitions(t *testing.T, names ...string) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/openkruise/kruise@"+kruiseVersion)
	command.Dir = filepath.Join(filepath.Dir(file), "../../hack/tools/kruise-"+kruiseVersion)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("download OpenKruise: %v", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		t.Fatalf("read where OpenKruise is: %v", err)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(module.Dir, "config/crd/bases/apps.kruise.io_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			t.Fatalf("read the definition of %s: %v", name, err)
		}
		all = append(all, definition)
	}
	return all
}
