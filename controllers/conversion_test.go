// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// installedPolicies is an API server with these admission policies and their bindings, or with an error.
type installedPolicies struct {
	client.Reader
	mu     sync.Mutex
	labels map[string]bool
	err    error
	reads  int
}

// fail sets the error of the next reads.
func (i *installedPolicies) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

// take returns the number of reads since the last call.
func (i *installedPolicies) take() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	reads := i.reads
	i.reads = 0
	return reads
}

// List returns the admission policies, or their bindings.
func (i *installedPolicies) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reads++
	if i.err != nil {
		return i.err
	}
	for label, installed := range i.labels {
		labelled := metav1.ObjectMeta{Name: label, Labels: map[string]string{v1alpha1.LabelNativePolicy: label}}
		switch list := list.(type) {
		case *admissionv1.MutatingAdmissionPolicyList:
			if installed {
				list.Items = append(list.Items, admissionv1.MutatingAdmissionPolicy{ObjectMeta: labelled})
			}
		case *admissionv1.MutatingAdmissionPolicyBindingList:
			binding := admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: labelled}
			binding.Spec.PolicyName = label
			if installed {
				list.Items = append(list.Items, binding)
			}
		}
	}
	return nil
}

func TestConversionFollowsComponent(t *testing.T) {
	whole := map[string]bool{native.LabelingPolicy: true, native.NamespacedPolicy: true, native.ClusterPolicy: true, native.EnvironmentPolicy: true}
	server := &installedPolicies{err: &meta.NoKindMatchError{}}
	changes := 0
	c := newConversion(server, time.Minute, func(context.Context) { changes++ })
	for _, step := range []struct {
		name                string
		set                 func()
		namespaced, cluster bool // available
		gauge               float64
		changes             int
	}{
		{"Kubernetes is too old", func() {}, false, false, 0, 1},
		{"no change", func() {}, false, false, 0, 1},
		{"Kubernetes is upgraded", func() { server.fail(nil) }, false, false, 0, 2},
		{"the component is installed", func() { server.labels = whole }, true, true, 1, 3},
		{"the API server is away", func() { server.fail(errors.New("connection refused")) }, true, true, 1, 3},
		{"it is back", func() { server.fail(nil) }, true, true, 1, 3},
		{"a policy is deleted", func() { delete(whole, native.ClusterPolicy) }, true, false, 0, 4},
		{"the environment is left out", func() { delete(whole, native.EnvironmentPolicy); whole[native.ClusterPolicy] = true }, true, true, 1, 5},
		{"the role is gone", func() { server.fail(apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no role"))) }, false, false, 0, 6},
	} {
		step.set()
		if err := c.update(t.Context()); (err != nil) != (step.name == "the API server is away") {
			t.Errorf("%s: error %v", step.name, err)
		}
		state := c.state.Load()
		if (state.namespaced == "") != step.namespaced || (state.cluster == "") != step.cluster {
			t.Errorf("%s: the state is %+v", step.name, state)
		}
		if got := testutil.ToFloat64(conversionAvailable); got != step.gauge {
			t.Errorf("%s: the gauge is %v, want %v", step.name, got, step.gauge)
		}
		if changes != step.changes {
			t.Errorf("%s: %d changes, want %d", step.name, changes, step.changes)
		}
	}
}

func TestConversionOfPolicy(t *testing.T) {
	known := &conversion{}
	known.state.Store(&conversionState{namespaced: "one", cluster: "other"})
	preferred := &v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionPreferred}}
	labels := map[string]string{v1alpha1.LabelNativeConversion: "Preferred"}
	for name, tc := range map[string]struct {
		conversion *conversion
		kind       resolve.PolicyKind
		spec       *v1alpha1.PolicySpec
		labels     map[string]string
		want       *rollup.Conversion
	}{
		"unknown":            {&conversion{}, resolve.KindNamespaced, preferred, labels, nil},
		"nothing asked":      {known, resolve.KindNamespaced, &v1alpha1.PolicySpec{}, labels, nil},
		"namespaced":         {known, resolve.KindNamespaced, preferred, labels, &rollup.Conversion{Unavailable: "one", Labeled: true}},
		"cluster, unlabeled": {known, resolve.KindCluster, preferred, nil, &rollup.Conversion{Unavailable: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.SidecarTerminationPolicy{}
			object.Labels = tc.labels
			got := tc.conversion.of(&policyObject{Object: object, ref: resolve.PolicyRef{Kind: tc.kind}, spec: tc.spec})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConversionIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &installedPolicies{err: errors.New("connection refused")}
		c := newConversion(server, conversionInterval, func(context.Context) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Start(ctx) }()

		early, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		if c.WaitUntilKnown(early) {
			t.Error("known without an answer")
		}
		if reads := server.take(); reads < 5 {
			t.Errorf("%d reads in 10 s without an answer", reads)
		}
		server.fail(nil)
		if !c.WaitUntilKnown(ctx) {
			t.Error("unknown after an answer")
		}
		server.take()
		time.Sleep(10*conversionInterval + time.Second)
		if reads, want := server.take(), 10*2; reads != want {
			t.Errorf("%d reads in 10 intervals, want %d", reads, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}
