// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// TestMain fails when a test leaves a goroutine running.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// definition returns an established definition that serves the version.
func definition(version string) apiextensionsv1.CustomResourceDefinition {
	return apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "configmaps.example.com", ResourceVersion: "2"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
		}},
	}
}

func TestServes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   bool
	}{
		"established": {func(*apiextensionsv1.CustomResourceDefinition) {}, true},
		"not established": {func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Status.Conditions[0].Status = apiextensionsv1.ConditionFalse
		}, false},
		"new":             {func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.Conditions = nil }, false},
		"deleted":         {func(d *apiextensionsv1.CustomResourceDefinition) { d.DeletionTimestamp = ptr.To(metav1.Now()) }, false},
		"another version": {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Name = "v2" }, false},
		"version is off":  {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Served = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := definition("v1")
			tc.change(&d)
			kept, err := withoutSchemas(&d)
			if err != nil {
				t.Fatal(err)
			}
			if got := serves(*kept.(*apiextensionsv1.CustomResourceDefinition), "v1"); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// api is a cluster whose API server serves lists and watches of definitions and of ConfigMaps. At first it has none.
type api struct {
	cluster.Cluster
	meta.RESTMapper
	server  *httptest.Server
	scheme  *runtime.Scheme
	changes chan metav1.WatchEvent // of the definition
	mapped  atomic.Int32           // how often the kind of ConfigMaps was mapped
}

func newAPI(t *testing.T) *api {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	a := &api{RESTMapper: mapper, scheme: runtime.NewScheme(), changes: make(chan metav1.WatchEvent)}
	if err := errors.Join(corev1.AddToScheme(a.scheme), apiextensionsv1.AddToScheme(a.scheme)); err != nil {
		t.Fatal(err)
	}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, changes := `{"kind":"ConfigMapList","apiVersion":"v1"`, (chan metav1.WatchEvent)(nil)
	selector := "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dsidecar-termination-operator"
	if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
		list, changes = `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1"`, a.changes
		selector = "fieldSelector=metadata.name%3Dconfigmaps.example.com"
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	switch query := r.URL.Query(); {
	case !strings.Contains(r.URL.RawQuery, selector):
		http.Error(w, "selector", http.StatusForbidden)
	case query.Get("sendInitialEvents") == "true":
		http.Error(w, "sendInitialEvents", http.StatusBadRequest)
	case query.Get("watch") == "":
		_, _ = w.Write([]byte(list + `,"metadata":{"resourceVersion":"1"},"items":[]}`))
	default:
		for {
			w.(http.Flusher).Flush()
			select {
			case change := <-changes:
				_ = json.NewEncoder(w).Encode(change)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (a *api) GetConfig() *rest.Config {
	return &rest.Config{Host: a.server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}
func (a *api) GetScheme() *runtime.Scheme     { return a.scheme }
func (a *api) GetHTTPClient() *http.Client    { return a.server.Client() }
func (a *api) GetRESTMapper() meta.RESTMapper { return a }

// RESTMapping fails for the first look-up of ConfigMaps: discovery may lag behind a definition.
func (a *api) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if kind.Kind == "ConfigMap" && a.mapped.Add(1) == 1 {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return a.RESTMapper.RESTMapping(kind, versions...)
}

// receive fails the test instead of waiting for ever.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(time.Minute):
		t.Fatal("received nothing")
	}
	return *new(T)
}

func TestAvailabilityFollowsDefinition(t *testing.T) {
	api, changed := newAPI(t), make(chan struct{}, 1)
	availability := NewAvailability(Config{
		Cluster: api, Example: &corev1.ConfigMap{}, Definition: "configmaps.example.com",
		Owner:   func(client.Object) []string { return nil },
		Handler: toolscache.ResourceEventHandlerFuncs{}, OnChange: func(context.Context) { changed <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- availability.Start(ctx) }()
	if !availability.WaitUntilKnown(ctx) || availability.Available() || availability.Reader() != nil {
		t.Error("want known, and not available")
	}
	installed := definition("v1")
	for _, step := range []struct {
		event     string
		available bool
	}{{"ADDED", true}, {"DELETED", false}, {"ADDED", true}} {
		api.changes <- metav1.WatchEvent{Type: step.event, Object: runtime.RawExtension{Object: &installed}}
		receive(t, changed)
		reader := availability.Reader()
		if availability.Available() != step.available || (reader != nil) != step.available {
			t.Errorf("%s: available %t, reader %v", step.event, availability.Available(), reader)
		}
		if reader != nil {
			if err := reader.List(ctx, &corev1.ConfigMapList{}, client.MatchingFields{IndexOwner: "none"}); err != nil {
				t.Error(err)
			}
		}
	}
	cancel()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	if NewAvailability(Config{}).WaitUntilKnown(ctx) {
		t.Error("known although it has not started")
	}
}
