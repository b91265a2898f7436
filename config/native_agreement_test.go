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

// podsPerModel is how many pods are created among the same random policies.
const podsPerModel = 50

// The admission policies and package native decide the same. NATIVE_PODS is the number of random pods, and NATIVE_SEED
// repeats a run.
func TestNativeAgreement(t *testing.T) {
	installNative(t)
	pods, seed := number(t, "NATIVE_PODS", 1000), uint64(number(t, "NATIVE_SEED", int(time.Now().UnixNano()&0xffffff)))
	converted := 0
	// A model that converts no pod is common, so a run with few conversions continues.
	for i := 0; i*podsPerModel < pods || converted < pods/10 && i*podsPerModel < 4*pods; i++ {
		m := newNativeModel(t, rand.New(rand.NewPCG(seed, uint64(i))))
		for range podsPerModel {
			converted += m.compare(t)
		}
		m.remove(t)
		if t.Failed() {
			t.Fatalf("repeat with NATIVE_SEED=%d", seed)
		}
	}
	t.Logf("%d pods were converted", converted)
	if converted < pods/10 {
		t.Errorf("only %d pods were converted: the comparison says little", converted)
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

// nativeModel is a namespace with random labels and random policies that may select its pods.
type nativeModel struct {
	random  *rand.Rand
	client  client.Client
	space   *corev1.Namespace
	objects []client.Object
	parsed  []resolve.Policy
}

func newNativeModel(t *testing.T, random *rand.Rand) *nativeModel {
	t.Helper()
	c, _ := newClient(t)
	m := &nativeModel{random: random, client: c}
	m.space = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "native-", Labels: m.namespaceLabels()}}
	create(t, c, m.space)
	for i := range random.IntN(6) {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: m.space.Name, Name: fmt.Sprintf("p%d", i)}}
		policy.Spec.PolicySpec = m.spec()
		m.add(t, policy)
		parsed, err := resolve.FromNamespaced(policy)
		m.parse(parsed, err)
	}
	for i := range random.IntN(4) {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", m.space.Name, i)}}
		policy.Spec.PolicySpec = m.spec()
		// Pods of other tests are not selected.
		metav1.AddLabelToSelector(&policy.Spec.PodSelector, "model", m.space.Name)
		if random.IntN(4) > 0 {
			policy.Spec.NamespaceSelector = m.selector()
		}
		m.add(t, policy)
		parsed, err := resolve.FromCluster(policy)
		m.parse(parsed, err)
	}
	awaitNative(t)
	return m
}

func (m *nativeModel) add(t *testing.T, policy client.Object) {
	t.Helper()
	m.objects = append(m.objects, policy)
	create(t, m.client, policy)
}

// parse keeps the policy. One with a selector that cannot be parsed selects nothing.
func (m *nativeModel) parse(policy resolve.Policy, err error) {
	if err == nil {
		m.parsed = append(m.parsed, policy)
	}
}

func (m *nativeModel) remove(t *testing.T) {
	t.Helper()
	for _, object := range m.objects {
		if err := m.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// compare creates a random pod without storing it, and requires the result that package native predicts. It returns 1 if
// a container was converted.
func (m *nativeModel) compare(t *testing.T) int {
	t.Helper()
	pod := m.pod()
	var selecting []resolve.Policy
	for _, policy := range m.parsed {
		if policy.Selects(pod, m.space.Labels) {
			selecting = append(selecting, policy)
		}
	}
	decision := native.Decide(pod, m.space.Labels, selecting, native.Options{
		Environment:  m.space.Labels[v1alpha1.LabelNativeEnvironment] == "true",
		VirtualNodes: native.DefaultVirtualNodeMarks(),
	})
	// An opted-out pod shows the server's defaults without conversion.
	defaulted := pod.DeepCopy()
	metav1.SetMetaDataLabel(&defaulted.ObjectMeta, v1alpha1.LabelNativeConversion, "false")
	got := pod.DeepCopy()
	for _, p := range []*corev1.Pod{defaulted, got} {
		if err := m.client.Create(t.Context(), p, client.DryRunAll); err != nil {
			t.Fatalf("create a pod: %v", err)
		}
	}
	want := native.Apply(defaulted, decision)
	if diff := cmp.Diff(want.Spec, got.Spec, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("spec of the pod differs (-package native +API server): %s\n%s", diff, m.describe(pod, decision))
	}
	if diff := cmp.Diff(want.Annotations, got.Annotations, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("annotations of the pod differ (-package native +API server): %.2000s\n%s", diff, m.describe(pod, decision))
	}
	return min(len(decision.Conversions), 1)
}

func (m *nativeModel) describe(pod *corev1.Pod, decision native.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "decision %s: %s\nlabels %v, labels of the namespace %v\n", decision.Reason, decision.Message, pod.Labels, m.space.Labels)
	for _, policy := range m.parsed {
		fmt.Fprintf(&b, "%s (selects: %t): %+v\n", policy.Ref, policy.Selects(pod, m.space.Labels), policy.Spec)
	}
	spec, _ := json.Marshal(pod.Spec)
	fmt.Fprintf(&b, "pod: %.4000s", spec)
	return b.String()
}

// one returns true in one of n cases.
func (m *nativeModel) one(n int) bool { return m.random.IntN(n) == 0 }

func pick[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

var (
	labelKeys        = []string{"app", "team", "example.com/tier"}
	labelValues      = []string{"", "a", "b", "c"}
	nativeContainers = []string{"main", "proxy", "logs", "a", "a-b", "b"}
)

func (m *nativeModel) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range labelKeys {
		if !m.one(3) {
			labels[key] = pick(m.random, labelValues...)
		}
	}
	return labels
}

func (m *nativeModel) namespaceLabels() map[string]string {
	labels := m.labels()
	if m.one(3) {
		labels[v1alpha1.LabelNativeEnvironment] = pick(m.random, "true", "true", "false")
	}
	if m.one(16) {
		labels[v1alpha1.LabelNativeConversion] = pick(m.random, "false", "Preferred")
	}
	if m.one(20) {
		labels["alibabacloud.com/eci"] = pick(m.random, "true", "false")
	}
	return labels
}

func (m *nativeModel) selector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if m.one(3) {
		return selector
	}
	if m.one(3) {
		selector.MatchLabels = map[string]string{pick(m.random, labelKeys...): pick(m.random, append(labelValues, "not valid")...)}
	}
	for range m.random.IntN(3) {
		expression := metav1.LabelSelectorRequirement{Key: pick(m.random, append(labelKeys, "not valid")...)}
		expression.Operator = pick(m.random, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Near")
		values := expression.Operator == metav1.LabelSelectorOpIn || expression.Operator == metav1.LabelSelectorOpNotIn
		if m.one(12) {
			values = !values // which cannot be parsed
		}
		if values {
			for range 1 + m.random.IntN(3) {
				expression.Values = append(expression.Values, pick(m.random, labelValues...))
			}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, expression)
	}
	return selector
}

func (m *nativeModel) spec() v1alpha1.PolicySpec {
	spec := v1alpha1.PolicySpec{PodSelector: *m.selector(), TerminationSettings: m.settings(m.random.IntN(4) > 0)}
	if m.one(6) {
		spec.Enforcement = v1alpha1.EnforcementDryRun
	}
	names := m.random.Perm(len(nativeContainers))[:1+m.random.IntN(3)]
	mains, listed := m.one(3), m.one(6)
	if listed {
		spec.MainContainersFrom = &v1alpha1.MainContainersFrom{PodAnnotation: nativeMainsKey}
	}
	for _, i := range names {
		if listed && m.one(2) {
			continue
		}
		if mains || listed {
			spec.MainContainers = append(spec.MainContainers, v1alpha1.ContainerName(nativeContainers[i]))
			continue
		}
		spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: nativeContainers[i], TerminationSettings: m.settings(m.one(6))})
	}
	return spec
}

// settings are those of a policy or of one of its sidecars.
func (m *nativeModel) settings(asks bool) v1alpha1.TerminationSettings {
	var s v1alpha1.TerminationSettings
	switch {
	case asks:
		s.NativeConversion = v1alpha1.NativeConversionPreferred
	case m.one(8):
		s.NativeConversion = v1alpha1.NativeConversionNone
	}
	switch {
	case m.one(5):
		s.ExitCodes = v1alpha1.ExitCodesIgnore
	case m.one(8) && !asks:
		s.ExitCodes = v1alpha1.ExitCodesRespect
	}
	switch {
	case m.one(8):
		s.DrainSeconds = ptr.To[int32](0)
	case m.one(8) && !asks:
		s.DrainSeconds = ptr.To[int32](5)
	}
	return s
}

func (m *nativeModel) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.space.Name, GenerateName: "job-", Labels: m.labels()}}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, "model", m.space.Name)
	pod.Spec.RestartPolicy = pick(m.random, corev1.RestartPolicyNever, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways)
	for _, i := range m.random.Perm(len(nativeContainers))[:1+m.random.IntN(5)] {
		pod.Spec.Containers = append(pod.Spec.Containers, m.container(nativeContainers[i], pod.Spec.RestartPolicy))
	}
	for i := range m.random.IntN(3) {
		setup := corev1.Container{Name: fmt.Sprintf("setup-%d", i), Image: "setup:1"}
		if m.one(3) {
			setup.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, setup)
	}
	if m.one(3) {
		pod.Annotations = map[string]string{"note": "kept"}
	}
	if m.one(2) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, nativeMainsKey, m.list(pod))
	}
	for range m.random.IntN(2) {
		m.complicate(pod)
	}
	return pod
}

// nativeMainsKey is the annotation in which policies find main containers.
const nativeMainsKey = "example.com/mains"

// list is a list of containers of the pod, which may be invalid.
func (m *nativeModel) list(pod *corev1.Pod) string {
	var names []string
	for i := range pod.Spec.Containers {
		if m.one(2) {
			names = append(names, pod.Spec.Containers[i].Name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if m.one(6) {
			names = append(names, pod.Spec.InitContainers[i].Name)
		}
	}
	switch {
	case m.one(8):
		names = append(names, pick(m.random, append(nativeContainers, "", "gone", "Main 1")...))
	case m.one(8) && len(names) > 0:
		// As many names as possible, or one more.
		for len(names) < resolve.MaxListedContainers+m.random.IntN(2) {
			names = append(names, names[0])
		}
	}
	list := strings.Join(names, pick(m.random, ",", ", ", " ,\u2003"))
	if m.one(8) {
		list += strings.Repeat(" ", max(0, resolve.MaxListBytes-len(list)+m.random.IntN(2)))
	}
	return list
}

func (m *nativeModel) container(name string, restartPolicy corev1.RestartPolicy) corev1.Container {
	container := corev1.Container{Name: name, Image: name + ":1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	for range m.random.IntN(4) {
		if !m.one(2) {
			continue
		}
		variable := corev1.EnvVar{Name: pick(m.random, "OTHER", v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode)}
		if m.one(8) {
			variable.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		} else {
			variable.Value = pick(m.random, "true", "TRUE", "false", "False", "falſe", "yes", "", "registry.example/quick-exit:v1", "$(IMAGE)", " true",
				"a"+strings.Repeat("b", 511), "a"+strings.Repeat("b", 512))
		}
		container.Env = append(container.Env, variable)
	}
	if m.one(20) {
		container.RestartPolicy = ptr.To(pick(m.random, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure))
	} else if m.one(30) && restartPolicy != corev1.RestartPolicyAlways {
		container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		container.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7}},
		}}
	}
	return container
}

// complicate makes the pod one that is left alone, or nearly so.
func (m *nativeModel) complicate(pod *corev1.Pod) {
	affinity := func(operator corev1.NodeSelectorOperator) *corev1.Affinity {
		terms := []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}},
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "type", Operator: operator, Values: []string{"vm", "virtual-kubelet"}}}},
		}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	pick(m.random,
		func() {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.LabelNativeConversion, pick(m.random, "false", "true", ""))
		},
		func() {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "alibabacloud.com/eci", pick(m.random, "true", "false"))
		},
		func() { pod.Spec.NodeSelector = map[string]string{"type": pick(m.random, "virtual-kubelet", "vm")} },
		func() {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Key: pick(m.random, "virtual-kubelet.io/provider", "dedicated", "")}}
		},
		func() { pod.Spec.SchedulerName = pick(m.random, "eci-scheduler", "my-scheduler") },
		func() {
			pod.Spec.Affinity = affinity(pick(m.random, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn))
		},
		func() { pod.Spec.NodeName = "node" },
		func() { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationNativeSidecars, m.forgery()) },
		func() { m.fillAnnotations(pod) },
		func() { m.fillContainers(pod) },
	)()
}

// forgery is an annotation that a pod's author might try.
func (m *nativeModel) forgery() string {
	return pick(m.random, "", "?", "?SidecarTerminationPolicy/p0:+main,+proxy", "?Environment:declared", "?;:;", "main=SidecarTerminationPolicy/p0", "!NoMainContainer")
}

// fillAnnotations gives the pod nearly or just too many bytes of annotations, in characters of one or two bytes.
func (m *nativeModel) fillAnnotations(pod *corev1.Pod) {
	const limit = 128 << 10
	letter := pick(m.random, "x", "ä")
	size := limit - len("large")
	for key, value := range pod.Annotations {
		size -= len(key) + len(value)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "large", strings.Repeat(letter, size/len(letter)+m.random.IntN(3)-1))
}

// fillContainers gives the pod nearly or just too many containers.
func (m *nativeModel) fillContainers(pod *corev1.Pod) {
	more := 127 + m.random.IntN(3) - len(pod.Spec.Containers) - len(pod.Spec.InitContainers)
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
