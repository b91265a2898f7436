// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/randfill"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// acceptedValues is how many random values the API server must accept for each field, and maxTries how many it may deny.
	acceptedValues = 3
	maxTries       = 2000
)

// anyOf fills values of the type with one of these.
func anyOf[T any](values ...T) func(*T, randfill.Continue) {
	return func(value *T, c randfill.Continue) { *value = values[c.Intn(len(values))] }
}

// words fills strings with values of pods, values of maximum length, and unexpected ones.
func words[T ~string]() func(*T, randfill.Continue) {
	return anyOf[T]("", "a", "main", "proxy", "team", "etl", "none", "default", "/app/server", quickExit, "quick exit:v1", "example.com/a.b", "UPPER",
		"two words", "\u00e9\u4e16\U0001F600", "*", "true", "-1", "{{.}}", "%s%n", "a\nb", "$(PATH)", T(strings.Repeat("a", 63)), T(strings.Repeat("b", 512)))
}

// fillerOf returns a filler of specs, whose values the definitions may deny.
func fillerOf(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 2).Funcs(
		words[string](), words[v1alpha1.ContainerName](), words[v1alpha1.QuickExitPath](),
		anyOf[int32](0, 1, 2, 3, 30, 100, -1, 86400, math.MaxInt32, math.MinInt32),
		anyOf(v1alpha1.ModeAuto, v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase, "", "Kill"),
		anyOf(v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect, "", "Sometimes"),
		anyOf(v1alpha1.FallbackEnabled, v1alpha1.FallbackDisabled, "", "Never"),
		anyOf(v1alpha1.EnforcementEnforce, v1alpha1.EnforcementDryRun, "Audit"),
		anyOf(metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Near"),
	)
}

// The API server denies a policy with random values, or the operator reports on it, while it runs with pods. SEED repeats a run.
func TestRandomPolicyIsDeniedOrReported(t *testing.T) {
	seed := rand.Int64()
	if value := os.Getenv("SEED"); value != "" {
		var err error
		if seed, err = strconv.ParseInt(value, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	newKruise(t).Install(t)
	f := newFixture(t)
	options := testOptions()
	options.PrePullNamespace = systemNamespace
	f.startOperator(options)
	running := f.newPod("running")
	f.newPod("finished", podtest.MainDone, podtest.SidecarDone, podtest.Succeeded)
	virtual := f.newNode(virtualKubelet)
	f.newPod("done", podtest.MainDone)
	f.newPod("virtual", podtest.MainDone, func(p *corev1.Pod) { p.Spec.NodeName = virtual })
	filler := fillerOf(seed)
	policy, clusterPolicy := f.newPolicy("mesh"), f.newClusterPolicy()
	f.vary(filler, policy, &policy.Spec)
	f.vary(filler, clusterPolicy, &clusterPolicy.Spec)
	if f.reload(running); running.Status.Phase != corev1.PodRunning || !slices.Equal(images(running), []string{"main:v1", "proxy:v1"}) {
		t.Errorf("pod %s was ended: phase %s, images %v", running.Name, running.Status.Phase, images(running))
	}
	f.nothingWentWrong()
}

// vary fills each field of the policy's spec with random values. The operator must report on each that the API server accepts.
func (f *fixture) vary(filler *randfill.Filler, policy v1alpha1.Policy, spec any) {
	f.Helper()
	values := reflect.ValueOf(spec).Elem()
	declarations := []string{"Sidecars", "MainContainers"}
	for _, field := range reflect.VisibleFields(values.Type()) {
		if field.Anonymous {
			continue
		}
		accepted := 0
		for range maxTries {
			before := policy.DeepCopyObject().(client.Object)
			if slices.Contains(declarations, field.Name) {
				for _, other := range declarations {
					values.FieldByName(other).SetZero()
				}
			}
			if field.Name == "QuickExitPaths" {
				values.FieldByName("Image").SetString(quickExit)
			}
			filler.Fill(values.FieldByIndex(field.Index).Addr().Interface())
			err := f.Patch(f.Context(), policy, client.MergeFrom(before))
			if err != nil {
				if !apierrors.IsInvalid(err) {
					f.Fatalf("%s: %v", field.Name, err)
				}
				reflect.ValueOf(policy).Elem().Set(reflect.ValueOf(before).Elem())
				continue
			}
			f.untilStatus(policy, "is reported with its new "+field.Name, func(s v1alpha1.PolicyStatus) bool {
				return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady) != nil && !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
					return c.Message == "" || c.ObservedGeneration != policy.GetGeneration()
				})
			})
			if accepted++; accepted == acceptedValues {
				break
			}
		}
		if accepted < acceptedValues {
			f.Errorf("%T: %s was accepted %d times only", policy, field.Name, accepted)
		}
	}
}

// Tools install manifests in any order, so the operator waits for its definitions. A deleted one takes its policies with it. The operator
// then uses environment variables alone, until the definitions are back.
func TestDefinitionsAreDeletedAndRecreated(t *testing.T) {
	f := newFixture(t)
	definitions := envtest.CRDInstallOptions{Paths: []string{"../config/crd/bases"}, MaxTime: time.Minute}
	define := func() {
		t.Helper()
		if _, err := envtest.InstallCRDs(server, definitions); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(define)
	undefine := func() {
		t.Helper()
		if err := envtest.UninstallCRDs(server, definitions); err != nil {
			t.Fatal(err)
		}
		for _, list := range []client.ObjectList{&v1alpha1.SidecarTerminationPolicyList{}, &v1alpha1.ClusterSidecarTerminationPolicyList{}} {
			testenv.Eventually(t, "the kind to be gone", func(ctx context.Context) error {
				if err := f.List(ctx, list); !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
					return errors.New("it is served")
				}
				return nil
			})
		}
	}
	const gone, kinds = `"msg":"A kind is no longer served`, 2
	var failures atomic.Int64
	undefine()
	go func() {
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return logged(`"msg":"A kind is not served yet`, kinds) == nil, nil
		}); err != nil {
			t.Errorf("the operator does not say that it waits: %v", err)
		}
		define()
	}()
	f.startOperator(testOptions(), func(o *manager.Options) {
		next := o.Cache.DefaultWatchErrorHandler
		o.Cache.DefaultWatchErrorHandler = func(ctx context.Context, watch *toolscache.Reflector, err error) {
			next(ctx, watch, err)
			failures.Add(1)
		}
	})
	f.untilCounts(f.newPolicy("mesh"), counts{})
	failures.Store(0)
	undefine()
	byVariable := func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	}
	f.until(f.newPod("by-variable", podtest.MainDone, byVariable), "its phase is Succeeded", succeeded)
	testenv.Eventually(t, "the operator says that the kinds have gone, once", func(context.Context) error {
		if failures.Load() < 3*kinds {
			return errors.New("the watches have not tried again")
		}
		return logged(gone, kinds)
	})
	waiting := f.newPod("by-policy", podtest.MainDone)
	f.until(f.newPod("by-variable-as-well", podtest.MainDone, byVariable), "its phase is Succeeded", succeeded)
	f.untouched(waiting)
	define()
	policy := f.newPolicy("mesh")
	f.until(waiting, "its phase is Succeeded", succeeded)
	f.untilCounts(policy, counts{})
	if err := logged(gone, kinds); err != nil {
		t.Error(err)
	}
}
