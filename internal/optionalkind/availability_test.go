// SPDX-License-Identifier: Apache-2.0

package optionalkind_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/optionalkind"
)

// source is a cache of definitions that runs until its context ends.
type source struct {
	informertest.FakeInformers
	started atomic.Bool
}

func newSource(synced bool, err error) *source {
	return &source{FakeInformers: informertest.FakeInformers{Scheme: scheme.Scheme, Synced: &synced, Error: err}}
}

func (s *source) Start(ctx context.Context) error {
	s.started.Store(true)
	<-ctx.Done()
	return nil
}

// change announces a change of a definition.
func (s *source) change(t *testing.T) {
	t.Helper()
	informer, err := s.FakeInformerFor(t.Context(), &corev1.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	informer.Add(&corev1.Secret{})
}

// run starts the availability and returns its context, which ends when Start returns, and a function that stops it and
// returns its error.
func run(t *testing.T, availability *optionalkind.Availability) (running context.Context, stop func() error) {
	t.Helper()
	logger := funcr.New(func(_, line string) { t.Log(line) }, funcr.Options{})
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(t.Context(), logger.WithSink(noErrors{logger.GetSink(), t})))
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- availability.Start(ctx)
	}()
	return ctx, func() error {
		cancel()
		return <-ended
	}
}

// noErrors fails the test when an error is logged.
type noErrors struct {
	logr.LogSink
	t *testing.T
}

func (s noErrors) Error(err error, message string, _ ...any) {
	s.t.Errorf("logged error: %s: %v", message, err)
}

func (s noErrors) WithName(string) logr.LogSink { return s }

func (s noErrors) WithValues(...any) logr.LogSink { return s }

// TestMain fails when a test leaves a goroutine running.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestLookIsRetried(t *testing.T) {
	for name, startSource := range map[string]bool{"manager starts the source": false, "Start starts the source": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A source of the manager need not have synced.
				source := newSource(startSource, nil)
				began := time.Now()
				var looks []time.Duration
				availability := optionalkind.NewAvailability(optionalkind.Config{
					Source: source, StartSource: startSource, Watched: []client.Object{&corev1.Secret{}},
					Look: func(context.Context) (served, usable bool, err error) {
						looks = append(looks, time.Since(began))
						if len(looks) == 1 {
							return false, false, errors.New("broken")
						}
						return false, true, nil
					},
					OnChange: func(context.Context, bool) { t.Error("announced without a change") },
				})
				running, stop := run(t, availability)
				if !availability.WaitUntilKnown(running) {
					t.Error("not known")
				}
				source.change(t)
				synctest.Wait()
				if diff := cmp.Diff([]time.Duration{0, 2 * time.Second, 2 * time.Second}, looks); diff != "" {
					t.Errorf("looks (-want +got):\n%s", diff)
				}
				if availability.Available() || availability.Reader() != nil {
					t.Error("available although not served")
				}
				if source.started.Load() != startSource {
					t.Errorf("source started: %t", source.started.Load())
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestStartFails(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		synced      bool
		startSource bool
		stopping    bool
		want        error
	}{
		"no informer":                {synced: true, want: broken},
		"no informer while it stops": {synced: true, stopping: true},
		"no source while it stops":   {startSource: true, stopping: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				if tc.stopping {
					stop()
				}
				availability := optionalkind.NewAvailability(optionalkind.Config{
					Source: newSource(tc.synced, broken), StartSource: tc.startSource, Watched: []client.Object{&corev1.Secret{}},
					Look: func(ctx context.Context) (served, usable bool, err error) { return false, false, ctx.Err() },
				})
				if err := availability.Start(ctx); !errors.Is(err, tc.want) {
					t.Errorf("got error %v", err)
				}
				stop()
				if availability.WaitUntilKnown(ctx) {
					t.Error("known although Look never succeeded")
				}
			})
		})
	}
}

// api is a cluster whose API server serves lists and watches of ConfigMaps, without any.
type api struct {
	cluster.Cluster
	server *httptest.Server
	config *rest.Config
}

func newAPI(t *testing.T) *api {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		switch query := r.URL.Query(); {
		case query.Get("labelSelector") != "mine=yes":
			http.Error(w, "labelSelector", http.StatusForbidden)
		case query.Get("sendInitialEvents") == "true":
			http.Error(w, "sendInitialEvents", http.StatusBadRequest)
		case query.Get("watch") == "":
			_, err := io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
			if err != nil {
				t.Error(err)
			}
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	return &api{server: server, config: &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}}
}

func (a *api) GetConfig() *rest.Config     { return a.config }
func (a *api) GetScheme() *runtime.Scheme  { return scheme.Scheme }
func (a *api) GetHTTPClient() *http.Client { return a.server.Client() }
func (a *api) GetRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return mapper
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

func TestAvailabilityFollowsTheKind(t *testing.T) {
	type state struct{ served, usable bool }
	var cluster atomic.Pointer[state]
	cluster.Store(&state{})
	looked, announced := make(chan struct{}, 1), make(chan bool, 1)
	source, prepared := newSource(true, nil), 0
	availability := optionalkind.NewAvailability(optionalkind.Config{
		Source: source, Watched: []client.Object{&corev1.Secret{}},
		Look: func(context.Context) (served, usable bool, err error) {
			looked <- struct{}{}
			now := cluster.Load()
			return now.served, now.usable, nil
		},
		Objects: optionalkind.Objects{
			Cluster: newAPI(t), Example: &corev1.ConfigMap{}, Labels: labels.Set{"mine": "yes"},
			Prepare: func(ctx context.Context, c cache.Cache) error {
				if prepared++; prepared == 1 {
					return errors.New("the first cache cannot be prepared")
				}
				_, err := c.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
				return err
			},
		},
		OnChange: func(_ context.Context, available bool) { announced <- available },
	})
	running, stop := run(t, availability)
	receive(t, looked)
	if !availability.WaitUntilKnown(running) || availability.Available() {
		t.Fatal("want known, and not available")
	}
	for _, step := range []struct {
		name      string
		cluster   state
		looks     int
		available bool
	}{
		{"install, with an error at first", state{true, true}, 2, true},
		{"upgrade of the controller", state{true, false}, 1, false},
		{"end of the upgrade", state{true, true}, 1, true},
		{"removal", state{false, true}, 1, false},
	} {
		cluster.Store(&step.cluster)
		for range step.looks {
			source.change(t)
			receive(t, looked)
		}
		if got := receive(t, announced); got != step.available || availability.Available() != step.available {
			t.Errorf("%s: announced %t, available %t", step.name, got, availability.Available())
		}
		if reader := availability.Reader(); (reader != nil) != step.cluster.served {
			t.Errorf("%s: reader %v", step.name, reader)
		} else if reader != nil {
			if err := reader.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	}
	if prepared != 2 {
		t.Errorf("%d caches were prepared, want one that failed and one", prepared)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
