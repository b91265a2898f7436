// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// plurals are the resources of the policies.
var plurals = []string{"sidecarterminationpolicies", "clustersidecarterminationpolicies"}

// define creates or replaces the definition, and waits until the API server serves it.
func (f *fixture) define(definition *apiextensionsv1.CustomResourceDefinition) {
	f.Helper()
	ctx := context.WithoutCancel(f.Context())
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current := &apiextensionsv1.CustomResourceDefinition{}
		err := f.Get(ctx, client.ObjectKeyFromObject(definition), current)
		if apierrors.IsNotFound(err) {
			return f.Create(ctx, definition.DeepCopy())
		}
		if err != nil {
			return err
		}
		current.Spec = *definition.Spec.DeepCopy()
		return f.Update(ctx, current)
	})
	if err != nil {
		f.Fatalf("define %s: %v", definition.Name, err)
	}
}

// restoreDefinitions restores the current definitions for later tests.
func (f *fixture) restoreDefinitions() {
	f.Cleanup(func() {
		for _, plural := range plurals {
			f.define(definitionOf(f.T, plural))
			testenv.Eventually(f.T, plural+" are served", func(ctx context.Context) error {
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(definitionOf(f.T, plural).Spec.Names.ListKind))
				return f.List(ctx, list)
			})
		}
	})
}

// everythingPolicy is a policy with every kind of setting.
func everythingPolicy(kind, namespace, name string) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if kind == "SidecarTerminationPolicy" {
		metadata["namespace"] = namespace
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata,
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"team": "etl"}},
			"sidecars":    []any{map[string]any{"name": "proxy", "mode": "PodPhase", "exitCodes": "Ignore", "drainSeconds": int64(0), "image": quickExit}},
			"mode":        "Auto", "exitCodes": "Ignore", "image": quickExit, "fallback": "Enabled", "terminationDeadlineSeconds": int64(60), "priority": int64(7),
			"quickExitPaths": []any{"default", "/app/server"}, "prePull": map[string]any{"pullSecrets": []any{"registry"}},
		},
	}}
}

// saidOf fails unless the operator logged the message about the kind that many times.
func saidOf(kind, message string, times int) error {
	operatorLog.mu.Lock()
	defer operatorLog.mu.Unlock()
	got := 0
	for line := range strings.Lines(operatorLog.text.String()) {
		if strings.Contains(line, message) && strings.Contains(line, `"kind":"`+kind+`"`) {
			got++
		}
	}
	if got != times {
		return fmt.Errorf("%q was logged %d times of %s, want %d", message, got, kind, times)
	}
	return nil
}

// A deleted definition takes its policies with it. The operator then uses environment variables alone, until the definitions are back.
func TestDefinitionsAreDeletedAndRecreated(t *testing.T) {
	f := newFixture(t)
	f.restoreDefinitions()
	panics := counted(t, "controller_runtime_reconcile_panics_total")
	kinds := []string{"*v1alpha1.SidecarTerminationPolicy", "*v1alpha1.ClusterSidecarTerminationPolicy"}
	const gone, back = "A kind is no longer served", "A kind is served again"
	var failures sync.Map // of watches, by kind
	f.startOperator(testOptions(), func(o *manager.Options) {
		next := o.Cache.DefaultWatchErrorHandler
		o.Cache.DefaultWatchErrorHandler = func(ctx context.Context, watch *toolscache.Reflector, err error) {
			next(ctx, watch, err)
			count, _ := failures.LoadOrStore(watch.TypeDescription(), &atomic.Int64{})
			count.(*atomic.Int64).Add(1)
		}
	})
	known := reasons(t)
	policy := everythingPolicy("SidecarTerminationPolicy", f.namespace, "mesh")
	f.create(policy.DeepCopy())
	f.untilReported(policy, known)
	for _, plural := range plurals {
		definition := definitionOf(t, plural)
		f.remove(definition)
		testenv.Eventually(t, plural+" are gone", func(ctx context.Context) error {
			err := f.Get(ctx, client.ObjectKeyFromObject(definition), &apiextensionsv1.CustomResourceDefinition{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the definition is still there: %w", err)
			}
			return nil
		})
	}
	for _, kind := range kinds {
		testenv.Eventually(t, kind+": the operator says that it has gone, once", func(context.Context) error {
			if count, ok := failures.Load(kind); !ok || count.(*atomic.Int64).Load() < 2 {
				return errors.New("the watch has not tried again yet")
			}
			return saidOf(kind, gone, 1)
		})
	}
	f.until(f.newPod("by-variable", podtest.MainDone, func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	}), "its phase is written", phaseWritten)
	waiting := f.newPod("by-policy", podtest.MainDone)
	for _, plural := range plurals {
		f.define(definitionOf(t, plural))
	}
	again := everythingPolicy("SidecarTerminationPolicy", f.namespace, "mesh")
	testenv.Eventually(t, "policies can be created", func(ctx context.Context) error { return f.Create(ctx, again.DeepCopy()) })
	f.until(waiting, "its phase is written", phaseWritten)
	f.untilReported(again, known)
	for _, kind := range kinds {
		testenv.Eventually(t, kind+": the operator says that it is back", func(context.Context) error { return saidOf(kind, back, 1) })
		if err := saidOf(kind, gone, 1); err != nil {
			t.Error(err)
		}
	}
	if got := counted(t, "controller_runtime_reconcile_panics_total") - panics; got > 0 {
		t.Errorf("the operator panicked %d times", got)
	}
}
