// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// watchedPolicy is the admission policy that the tests change. Only authors of policies notice it.
const watchedPolicy = "sidecar-termination-mode-crr"

// admissionStates returns the states that the metric has for an admission policy.
func admissionStates(policy string) ([]string, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, err
	}
	var states []string
	for _, family := range families {
		if family.GetName() != "sidecar_termination_admission_policies" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["policy"] == policy && metric.GetGauge().GetValue() == 1 {
				states = append(states, labels["state"])
			}
		}
	}
	return states, nil
}

// untilAdmission waits until the metric has exactly the state for the watched policy.
func (f *fixture) untilAdmission(want shipped.State) {
	f.Helper()
	testenv.Eventually(f.T, "the metric says "+string(want), func(context.Context) error {
		states, err := admissionStates("mode-crr")
		if err == nil && !slices.Equal(states, []string{string(want)}) {
			err = fmt.Errorf("states are %q", states)
		}
		return err
	})
}

// newAdmissionWatch returns a watch of an operator in a pod, which reads often. It drops what operators of other tests have reported.
func (f *fixture) newAdmissionWatch(reader client.Reader) *admissionWatch {
	f.Helper()
	admissionPolicies.Reset()
	watch, err := newAdmissionWatch(reader, testOptions())
	if err != nil {
		f.Fatal(err)
	}
	pod := f.newPod("operator", func(pod *corev1.Pod) {
		pod.Labels["pod-template-hash"], pod.Spec.ServiceAccountName = "7f9c", serviceAccount
	})
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: serviceAccount + "-7f9c", UID: "1"}}
	f.update(pod)
	watch.pod, watch.interval = client.ObjectKeyFromObject(pod), 20*time.Millisecond
	return watch
}

// messages returns the messages in the log that have the text.
func messages(log, text string) []string {
	var all []string
	for line := range strings.Lines(log) {
		var entry struct{ Msg string }
		if strings.Contains(line, text) && json.Unmarshal([]byte(line), &entry) == nil {
			all = append(all, entry.Msg)
		}
	}
	return all
}

func TestAdmissionPolicyTransitionsAreReported(t *testing.T) {
	f := newFixture(t)
	mgr := f.newManager()
	if err := mgr.Add(f.newAdmissionWatch(mgr.GetAPIReader())); err != nil {
		t.Fatal(err)
	}
	f.start(mgr)
	f.untilAdmission(shipped.Present)

	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: watchedPolicy}}
	f.reload(binding)
	again := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: watchedPolicy, Labels: binding.Labels}, Spec: binding.Spec}
	f.remove(binding)
	f.untilAdmission(shipped.Missing)
	f.create(again.DeepCopy())
	f.untilAdmission(shipped.Present)

	f.reload(binding)
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
	f.update(binding)
	f.untilAdmission(shipped.Changed)
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	binding.Finalizers = []string{"example.com/hold"}
	f.update(binding)
	f.untilAdmission(shipped.Present)

	f.remove(binding)
	f.untilAdmission(shipped.BeingDeleted)
	f.reload(binding)
	binding.Finalizers = nil
	f.update(binding)
	f.untilAdmission(shipped.Missing)
	f.create(again)
	f.untilAdmission(shipped.Present)

	const back = "Admission policy is as shipped again"
	want := []string{
		"Admission policy is missing", back, "Admission policy is not as this version ships it", back,
		"Admission policy is being deleted", "Admission policy is missing", back,
	}
	if diff := cmp.Diff(want, messages(operatorLog.take(), `"admissionPolicy":"`+watchedPolicy+`"`)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestForbiddenReadsOfAdmissionPoliciesAreLoggedOnce(t *testing.T) {
	f := newFixture(t)
	limited := rest.CopyConfig(server)
	limited.Impersonate.UserName = "nobody"
	watch := f.newAdmissionWatch(f.newManagerAs(limited).GetAPIReader())
	for range 3 {
		watch.round(t.Context())
	}
	f.untilAdmission(shipped.Unknown)
	if got := messages(operatorLog.take(), `"logger":"admission"`); !slices.Equal(got, []string{"Cannot tell whether the admission policies are as shipped"}) {
		t.Errorf("log: %q", got)
	}
}

func TestOneFailedReadOfAnAdmissionPolicyIsNoTransition(t *testing.T) {
	f := newFixture(t)
	direct, err := client.NewWithWatch(asOperator(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var fail error
	watch := f.newAdmissionWatch(interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if fail != nil {
				return fail
			}
			return c.Get(ctx, key, object, options...)
		},
	}))
	for _, tc := range []struct {
		fail error
		want shipped.State
	}{{nil, shipped.Present}, {errors.New("no answer"), shipped.Present}, {errors.New("no answer"), shipped.Unknown}, {nil, shipped.Present}} {
		fail = tc.fail
		watch.round(t.Context())
		if got := watch.states[watchedPolicy]; got != tc.want {
			t.Errorf("state is %s, want %s", got, tc.want)
		}
	}
}

func TestUnservedKindOfAdmissionPolicy(t *testing.T) {
	f := newFixture(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		mapper.Add(admissionv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	old, err := client.New(asOperator(), client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	watch := f.newAdmissionWatch(old)
	watch.round(t.Context())
	if got := watch.states[shipped.OutcomePolicy]; got != shipped.NotServed {
		t.Errorf("the outcome policy is %s", got)
	}
	if got := watch.states[watchedPolicy]; got != shipped.Present {
		t.Errorf("%s is %s", watchedPolicy, got)
	}
}
