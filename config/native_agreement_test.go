// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// podsPerWorld is how many pods are created among the same random policies.
const podsPerWorld = 50

// The admission policies and package native decide the same. NATIVE_PODS is the number of random pods, and NATIVE_SEED
// repeats a run.
func TestNativeAgreement(t *testing.T) {
	installNative(t)
	pods, seed := number(t, "NATIVE_PODS", 1000), uint64(number(t, "NATIVE_SEED", int(time.Now().UnixNano()&0xffffff)))
	converted := 0
	for i := range (pods + podsPerWorld - 1) / podsPerWorld {
		w := newNativeWorld(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for range podsPerWorld {
			converted += w.compare(t)
		}
		w.remove(t)
		if t.Failed() {
			t.Fatalf("repeat with NATIVE_SEED=%d", seed)
		}
	}
	t.Logf("%d of %d pods were converted", converted, pods)
	if converted < pods/10 {
		t.Errorf("only %d of %d pods were converted: the comparison says little", converted, pods)
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// nativeWorld is a namespace with random labels and random policies that may select its pods.
type nativeWorld struct {
	random  *rand.Rand
	client  client.Client
	space   *corev1.Namespace
	objects []client.Object
	parsed  []resolve.Policy
}

func newNativeWorld(t *testing.T, random *rand.Rand) *nativeWorld {
	t.Helper()
	c, _ := newClient(t)
	w := &nativeWorld{random: random, client: c}
	w.space = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "native-", Labels: w.namespaceLabels()}}
	create(t, c, w.space)
	for i := range random.IntN(6) {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.space.Name, Name: fmt.Sprintf("p%d", i)}}
		policy.Spec.PolicySpec = w.spec()
		w.add(t, policy)
		parsed, err := resolve.FromNamespaced(policy)
		w.parse(parsed, err)
	}
	for i := range random.IntN(4) {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.space.Name, i)}}
		policy.Spec.PolicySpec = w.spec()
		// Pods of other tests are not selected.
		metav1.AddLabelToSelector(&policy.Spec.PodSelector, "world", w.space.Name)
		if random.IntN(4) > 0 {
			policy.Spec.NamespaceSelector = w.selector()
		}
		w.add(t, policy)
		parsed, err := resolve.FromCluster(policy)
		w.parse(parsed, err)
	}
	awaitNative(t)
	return w
}

func (w *nativeWorld) add(t *testing.T, policy client.Object) {
	t.Helper()
	w.objects = append(w.objects, policy)
	create(t, w.client, policy)
}

// parse keeps the policy. One with a selector that cannot be parsed selects nothing.
func (w *nativeWorld) parse(policy resolve.Policy, err error) {
	if err == nil {
		w.parsed = append(w.parsed, policy)
	}
}

func (w *nativeWorld) remove(t *testing.T) {
	t.Helper()
	for _, object := range w.objects {
		if err := w.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// compare creates a random pod without storing it, and requires the result that package native predicts. It returns 1 if
// a container was converted.
func (w *nativeWorld) compare(t *testing.T) int {
	t.Helper()
	pod := w.pod()
	var selecting []resolve.Policy
	for _, policy := range w.parsed {
		if policy.Selects(pod, w.space.Labels) {
			selecting = append(selecting, policy)
		}
	}
	decision := native.Decide(pod, w.space.Labels, selecting, native.Options{
		Environment:  w.space.Labels[v1alpha1.LabelNativeEnvironment] == "true",
		VirtualNodes: native.DefaultVirtualNodeMarks(),
	})
	// An opted-out pod shows the server's defaults without conversion.
	defaulted := pod.DeepCopy()
	metav1.SetMetaDataLabel(&defaulted.ObjectMeta, v1alpha1.LabelNativeConversion, "false")
	got := pod.DeepCopy()
	for _, p := range []*corev1.Pod{defaulted, got} {
		if err := w.client.Create(t.Context(), p, client.DryRunAll); err != nil {
			t.Fatalf("create a pod: %v", err)
		}
	}
	want := native.Apply(defaulted, decision)
	if diff := cmp.Diff(want.Spec, got.Spec, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("spec of the pod differs (-package native +API server): %s\n%s", diff, w.describe(pod, decision))
	}
	if diff := cmp.Diff(want.Annotations, got.Annotations, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("annotations of the pod differ (-package native +API server): %.2000s\n%s", diff, w.describe(pod, decision))
	}
	return min(len(decision.Conversions), 1)
}

func (w *nativeWorld) describe(pod *corev1.Pod, decision native.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "decision %s: %s\nlabels %v, labels of the namespace %v\n", decision.Reason, decision.Message, pod.Labels, w.space.Labels)
	for _, policy := range w.parsed {
		fmt.Fprintf(&b, "%s (selects: %t): %+v\n", policy.Ref, policy.Selects(pod, w.space.Labels), policy.Spec)
	}
	spec, _ := json.Marshal(pod.Spec)
	fmt.Fprintf(&b, "pod: %.4000s", spec)
	return b.String()
}

// one returns true in one of n cases.
func (w *nativeWorld) one(n int) bool { return w.random.IntN(n) == 0 }

func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

var (
	labelKeys        = []string{"app", "team", "example.com/tier"}
	labelValues      = []string{"", "a", "b", "c"}
	nativeContainers = []string{"main", "proxy", "logs", "a", "a-b", "b"}
)

func (w *nativeWorld) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range labelKeys {
		if !w.one(3) {
			labels[key] = pick(w.random, labelValues...)
		}
	}
	return labels
}

func (w *nativeWorld) namespaceLabels() map[string]string {
	labels := w.labels()
	if w.one(3) {
		labels[v1alpha1.LabelNativeEnvironment] = pick(w.random, "true", "true", "false")
	}
	if w.one(16) {
		labels[v1alpha1.LabelNativeConversion] = pick(w.random, "false", "Preferred")
	}
	if w.one(20) {
		labels["alibabacloud.com/eci"] = pick(w.random, "true", "false")
	}
	return labels
}

func (w *nativeWorld) selector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if w.one(3) {
		return selector
	}
	if w.one(3) {
		selector.MatchLabels = map[string]string{pick(w.random, labelKeys...): pick(w.random, append(labelValues, "not valid")...)}
	}
	for range w.random.IntN(3) {
		expression := metav1.LabelSelectorRequirement{Key: pick(w.random, append(labelKeys, "not valid")...)}
		expression.Operator = pick(w.random, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Near")
		values := expression.Operator == metav1.LabelSelectorOpIn || expression.Operator == metav1.LabelSelectorOpNotIn
		if w.one(12) {
			values = !values // which cannot be parsed
		}
		if values {
			for range 1 + w.random.IntN(3) {
				expression.Values = append(expression.Values, pick(w.random, labelValues...))
			}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, expression)
	}
	return selector
}

func (w *nativeWorld) spec() v1alpha1.PolicySpec {
	spec := v1alpha1.PolicySpec{PodSelector: *w.selector(), TerminationSettings: w.settings(w.random.IntN(4) > 0)}
	if w.one(6) {
		spec.Enforcement = v1alpha1.EnforcementDryRun
	}
	names := w.random.Perm(len(nativeContainers))[:1+w.random.IntN(3)]
	mains := w.one(3)
	for _, i := range names {
		if mains {
			spec.MainContainers = append(spec.MainContainers, v1alpha1.ContainerName(nativeContainers[i]))
			continue
		}
		spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: nativeContainers[i], TerminationSettings: w.settings(w.one(6))})
	}
	return spec
}

// settings are those of a policy or of one of its sidecars.
func (w *nativeWorld) settings(asks bool) v1alpha1.TerminationSettings {
	var s v1alpha1.TerminationSettings
	switch {
	case asks:
		s.NativeConversion = v1alpha1.NativeConversionPreferred
	case w.one(8):
		s.NativeConversion = v1alpha1.NativeConversionNone
	}
	switch {
	case w.one(5):
		s.ExitCodes = v1alpha1.ExitCodesIgnore
	case w.one(8) && !asks:
		s.ExitCodes = v1alpha1.ExitCodesRespect
	}
	switch {
	case w.one(8):
		s.DrainSeconds = ptr.To[int32](0)
	case w.one(8) && !asks:
		s.DrainSeconds = ptr.To[int32](5)
	}
	return s
}

func (w *nativeWorld) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.space.Name, GenerateName: "job-", Labels: w.labels()}}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, "world", w.space.Name)
	pod.Spec.RestartPolicy = pick(w.random, corev1.RestartPolicyNever, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways)
	for _, i := range w.random.Perm(len(nativeContainers))[:1+w.random.IntN(5)] {
		pod.Spec.Containers = append(pod.Spec.Containers, w.container(nativeContainers[i], pod.Spec.RestartPolicy))
	}
	for i := range w.random.IntN(3) {
		setup := corev1.Container{Name: fmt.Sprintf("setup-%d", i), Image: "setup:1"}
		if w.one(3) {
			setup.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, setup)
	}
	if w.one(3) {
		pod.Annotations = map[string]string{"note": "kept"}
	}
	for range w.random.IntN(2) {
		w.complicate(pod)
	}
	return pod
}

func (w *nativeWorld) container(name string, restartPolicy corev1.RestartPolicy) corev1.Container {
	container := corev1.Container{Name: name, Image: name + ":1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	for range w.random.IntN(4) {
		if !w.one(2) {
			continue
		}
		variable := corev1.EnvVar{Name: pick(w.random, "OTHER", v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode)}
		if w.one(8) {
			variable.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		} else {
			variable.Value = pick(w.random, "true", "TRUE", "false", "False", "falſe", "yes", "", "registry.example/quick-exit:v1", "$(IMAGE)", " true",
				"a"+strings.Repeat("b", 511), "a"+strings.Repeat("b", 512))
		}
		container.Env = append(container.Env, variable)
	}
	if w.one(20) {
		container.RestartPolicy = ptr.To(pick(w.random, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure))
	} else if w.one(30) && restartPolicy != corev1.RestartPolicyAlways {
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		container.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7}},
		}}
	}
	return container
}

// complicate makes the pod one that is left alone, or nearly so.
func (w *nativeWorld) complicate(pod *corev1.Pod) {
	affinity := func(operator corev1.NodeSelectorOperator) *corev1.Affinity {
		terms := []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}},
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "type", Operator: operator, Values: []string{"vm", "virtual-kubelet"}}}},
		}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	pick(w.random,
		func() {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.LabelNativeConversion, pick(w.random, "false", "true", ""))
		},
		func() {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "alibabacloud.com/eci", pick(w.random, "true", "false"))
		},
		func() { pod.Spec.NodeSelector = map[string]string{"type": pick(w.random, "virtual-kubelet", "vm")} },
		func() {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Key: pick(w.random, "virtual-kubelet.io/provider", "dedicated", "")}}
		},
		func() { pod.Spec.SchedulerName = pick(w.random, "eci-scheduler", "my-scheduler") },
		func() {
			pod.Spec.Affinity = affinity(pick(w.random, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn))
		},
		func() { pod.Spec.NodeName = "node" },
		func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNativeSidecars, w.forgery()) },
		func() { w.fillAnnotations(pod) },
		func() { w.fillContainers(pod) },
	)()
}

// forgery is an annotation that a pod's author might try.
func (w *nativeWorld) forgery() string {
	return pick(w.random, "", "?", "?SidecarTerminationPolicy/p0:+main,+proxy", "?Environment:declared", "?;:;", "main=SidecarTerminationPolicy/p0", "!NoMainContainer")
}

// fillAnnotations gives the pod nearly or just too many bytes of annotations, in characters of one or two bytes.
func (w *nativeWorld) fillAnnotations(pod *corev1.Pod) {
	const limit = 128 << 10
	letter := pick(w.random, "x", "ä")
	size := limit - len("large")
	for key, value := range pod.Annotations {
		size -= len(key) + len(value)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "large", strings.Repeat(letter, size/len(letter)+w.random.IntN(3)-1))
}

// fillContainers gives the pod nearly or just too many containers.
func (w *nativeWorld) fillContainers(pod *corev1.Pod) {
	more := 127 + w.random.IntN(3) - len(pod.Spec.Containers) - len(pod.Spec.InitContainers)
	for i := range more {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "c:1"})
	}
}

// installNative installs overlay native.
func installNative(tb testing.TB) {
	tb.Helper()
	apply(tb, "overlays/native")
	awaitNative(tb)
}

// awaitNative waits until the server converts pods according to all policies that exist now and none that was deleted. The
// server observes the policies of a kind in order, so the last one shows that it has observed all.
func awaitNative(tb testing.TB) {
	tb.Helper()
	c, _ := newClient(tb)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sentinel-"}}
	create(tb, c, space)
	spec := func(container string) v1alpha1.PolicySpec {
		return v1alpha1.PolicySpec{
			Sidecars:            []v1alpha1.Sidecar{{Name: container}},
			TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionPreferred},
		}
	}
	namespaced := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: "sentinel"}}
	namespaced.Spec.PolicySpec = spec("namespaced")
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: space.Name}}
	cluster.Spec.PolicySpec = spec("cluster")
	cluster.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: space.Name}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: "sentinel"}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, name := range []string{"main", "namespaced", "cluster"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "any:1"})
	}
	want := "namespaced=SidecarTerminationPolicy/sentinel,cluster=ClusterSidecarTerminationPolicy/" + space.Name
	// The label is set by an admission policy as well, so a policy that was created too early has none.
	for _, policy := range []client.Object{namespaced, cluster} {
		testenv.Eventually(tb, "a policy to be labeled", func(ctx context.Context) error {
			attempt := policy.DeepCopyObject().(client.Object)
			if err := c.Create(ctx, attempt, client.DryRunAll); err != nil {
				return err
			}
			if attempt.GetLabels()[v1alpha1.LabelNativeConversion] == "" {
				return errors.New("it has no label")
			}
			return nil
		})
		create(tb, c, policy)
	}
	testenv.Eventually(tb, "pods to be converted", func(ctx context.Context) error {
		got := pod.DeepCopy()
		if err := c.Create(ctx, got, client.DryRunAll); err != nil {
			return err
		}
		if text := got.Annotations[v1alpha1.AnnotationNativeSidecars]; text != want {
			return fmt.Errorf("the annotation is %q", text)
		}
		return nil
	})
	if err := c.Delete(tb.Context(), cluster); err != nil {
		tb.Fatal(err)
	}
}
