// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// defaultMutations suits every run of the tests. MUTATIONS=5000 raises it.
	defaultMutations = 300
	// maxReconciles is the maximum number of reconciles for one mutation: one for each pod, two for each pull job, and one after the
	// status period.
	maxReconciles = 12
	// maxStatusWrites is the maximum number of status writes for one mutation: one for the mutation and one for its effects.
	maxStatusWrites = 2
	// maxRejections is the maximum number of consecutive values that the schema allows and CEL rules deny.
	maxRejections = 200
)

// number reads an environment variable.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return otherwise
	}
	parsed, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return parsed
}

// mutated is a policy that the test changes repeatedly.
type mutated struct {
	*fixture
	generator
	kind, plural string
	fields       []field
	rules        map[string]bool // the messages of CEL rules, and whether each has denied something
	reasons      map[string]bool
	stored       *unstructured.Unstructured // as it was last accepted

	accepted, rejected map[string]int // by field
}

func newMutated(f *fixture, g generator, kind, plural, namespace string) *mutated {
	f.Helper()
	m := &mutated{fixture: f, generator: g, kind: kind, plural: plural, fields: fieldsOf(definitionOf(f.T, plural)),
		rules: map[string]bool{}, reasons: reasons(f.T), accepted: map[string]int{}, rejected: map[string]int{}}
	for _, field := range m.fields {
		for _, rule := range field.schema.XValidations {
			m.rules[rule.Message] = false
		}
	}
	m.stored = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": f.namespace, "namespace": namespace},
		"spec":     map[string]any{"podSelector": map[string]any{}, "sidecars": []any{map[string]any{"name": "proxy"}}},
	}}
	if namespace == "" {
		unstructured.RemoveNestedField(m.stored.Object, "metadata", "namespace")
	}
	m.create(m.stored)
	m.reported()
	return m
}

// alternatives are the fields that a policy may have instead of the path's first field.
func alternatives(steps []string) []string {
	if len(steps) < 2 {
		return nil
	}
	return map[string][]string{
		"sidecars": {"mainContainers", "mainContainersFrom"}, "mainContainers": {"sidecars"}, "mainContainersFrom": {"sidecars"},
	}[steps[1]]
}

// changed returns the stored policy with a new value of the field, and the field's path.
func (m *mutated) changed(target field, change func(old any) any) (policy *unstructured.Unstructured, where string) {
	m.Helper()
	policy = m.stored.DeepCopy()
	spec := policy.Object["spec"].(map[string]any)
	if m.IntN(8) > 0 {
		for _, other := range alternatives(target.steps) {
			delete(spec, other)
		}
	}
	updated, where := m.edit(spec, m.fields[0].schema, target.steps[1:], "spec", change)
	policy.Object["spec"] = updated
	if updated == any(removed{}) {
		delete(policy.Object, "spec")
	}
	return policy, where
}

// send writes the policy over any version, because the operator writes the status in between.
func (m *mutated) send(c client.Client, policy *unstructured.Unstructured) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current := m.stored.DeepCopy()
		if err := m.Get(m.Context(), client.ObjectKeyFromObject(policy), current); err != nil {
			return err
		}
		policy.SetResourceVersion(current.GetResourceVersion())
		return c.Update(m.Context(), policy)
	})
}

// valid sets the field to a value that its schema allows, or removes it.
func (m *mutated) valid(target field) {
	m.Helper()
	if len(target.steps) > 1 && m.IntN(6) == 0 {
		m.allowed(target, removed{})
		return
	}
	m.allowed(target, m.value(target.schema))
}

// allowed sets the field to a value that its schema allows. Only a CEL rule may deny that.
func (m *mutated) allowed(target field, value any) {
	m.Helper()
	policy, where := m.changed(target, func(any) any { return value })
	err := m.send(m.Client, policy)
	if err == nil {
		m.accept(target, policy)
		return
	}
	m.reject(target, where, "a valid value", policy, err)
	for _, cause := range causes(err) {
		message, known := m.rule(cause.Message)
		// The removed field may be required, its list may become too short, or the item may be a duplicate. The API server then skips CEL
		// rules.
		around := slices.ContainsFunc([]string{"Required value", "should have at least", "Duplicate value", "rules were not checked"},
			func(part string) bool { return strings.Contains(cause.Message, part) })
		if !known && !around {
			m.Errorf("%s %s: a valid value was denied without a rule: %v", m.kind, where, err)
		}
		if known {
			m.rules[message] = true
		}
	}
}

// validUntilAccepted sets valid values until no rule denies one.
func (m *mutated) validUntilAccepted(target field) {
	m.Helper()
	for range maxRejections {
		if m.allowed(target, m.value(target.schema)); m.accepted[target.String()] > 0 || m.Failed() {
			return
		}
	}
	m.Errorf("%s %s: rules have rejected %d valid values", m.kind, target, maxRejections)
}

// rule returns the message of the CEL rule in the text.
func (m *mutated) rule(text string) (string, bool) {
	for message := range m.rules {
		if strings.Contains(text, message) {
			return message, true
		}
	}
	return "", false
}

// invalid sets the field to a value that its schema does not allow.
func (m *mutated) invalid(target field) {
	m.Helper()
	w := one(m.generator, m.wrongs(target.schema))
	policy, where := m.changed(target, func(any) any { return w.value })
	if err := m.send(m.Client, policy); err != nil {
		m.reject(target, where, w.what, policy, err)
		return
	}
	m.Errorf("%s %s: %s was accepted: %v", m.kind, where, w.what, w.value)
	m.accept(target, policy)
}

// unknown adds a field that the schema lacks. The answer names it if the client asks for that, and otherwise drops it.
func (m *mutated) unknown(target field) {
	m.Helper()
	if len(target.schema.Properties) == 0 {
		m.invalid(target)
		return
	}
	policy, where := m.changed(target, func(old any) any {
		object, ok := old.(map[string]any)
		if !ok {
			object = m.value(target.schema).(map[string]any)
		}
		object["unheardOf"] = "text"
		return object
	})
	strict := client.WithFieldValidation(m.Client, metav1.FieldValidationStrict)
	if err := m.send(strict, policy.DeepCopy()); err == nil || !strings.Contains(err.Error(), where+".unheardOf") {
		m.Errorf("%s %s: an unknown field was answered with: %v", m.kind, where, err)
	}
	if err := m.send(m.Client, policy); err != nil {
		// A CEL rule may deny a parent that was created for the field.
		m.reject(target, where, "an unknown field", policy, err)
		return
	}
	if strings.Contains(fmt.Sprint(policy.Object["spec"]), "unheardOf") {
		m.Errorf("%s %s: an unknown field was stored", m.kind, where)
	}
	m.accept(target, policy)
}

// nothing sets the field to null, which counts as unset or is denied.
func (m *mutated) nothing(target field) {
	m.Helper()
	policy, where := m.changed(target, func(any) any { return nil })
	if err := m.send(m.Client, policy); err != nil {
		m.reject(target, where, "null", policy, err)
		return
	}
	m.accept(target, policy)
}

// index is the index of an item in a list.
var index = regexp.MustCompile(`\[\d+\]`)

// reject checks that the answer names the field, a parent of it, or a field inside it.
func (m *mutated) reject(target field, where, what string, policy *unstructured.Unstructured, err error) {
	m.Helper()
	m.rejected[target.String()]++
	if !apierrors.IsInvalid(err) {
		m.Errorf("%s %s: %s was answered with: %v", m.kind, where, what, err)
		return
	}
	// The answer may name either of two duplicates.
	where = index.ReplaceAllString(where, "[]")
	if !slices.ContainsFunc(causes(err), func(cause metav1.StatusCause) bool {
		cause.Field = index.ReplaceAllString(cause.Field, "[]")
		// A rule about two fields names one, and the other one in its message.
		_, rule := m.rule(cause.Message)
		return cause.Field != "" && (rule || strings.HasPrefix(cause.Field, where) || strings.HasPrefix(where, cause.Field))
	}) {
		m.Errorf("%s: %s of %s was rejected, and the answer does not name it: %v\nspec %v", m.kind, what, where, err, policy.Object["spec"])
	}
}

func causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// accept continues from the policy after the operator has reported on it.
func (m *mutated) accept(target field, policy *unstructured.Unstructured) {
	m.Helper()
	m.accepted[target.String()]++
	m.stored = policy
	m.reported()
}

// reported waits until the operator has reported on the current policy.
func (m *mutated) reported() {
	m.Helper()
	m.untilReported(m.stored, m.reasons)
}

// typedPolicy reads a policy of either kind as the operator does.
func typedPolicy(object *unstructured.Unstructured) (client.Object, *v1alpha1.PolicyStatus, error) {
	if object.GetKind() == "ClusterSidecarTerminationPolicy" {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy)
		return policy, &policy.Status, err
	}
	policy := &v1alpha1.SidecarTerminationPolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy)
	return policy, &policy.Status, err
}

// untilReported waits until the status is complete and of the policy's generation.
func (f *fixture) untilReported(policy *unstructured.Unstructured, known map[string]bool) {
	f.Helper()
	testenv.Eventually(f.T, policy.GetKind()+": its status is current", func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		_, status, err := typedPolicy(policy)
		if err != nil {
			return err
		}
		if status.ObservedGeneration != policy.GetGeneration() {
			return fmt.Errorf("it is of generation %d and not %d: spec %v", status.ObservedGeneration, policy.GetGeneration(), policy.Object["spec"])
		}
		if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady) == nil {
			return fmt.Errorf("it has no condition Ready: %+v", status)
		}
		for _, condition := range status.Conditions {
			if !known[condition.Reason] || condition.Message == "" || condition.ObservedGeneration != policy.GetGeneration() {
				return fmt.Errorf("generation %d has condition %+v", policy.GetGeneration(), condition)
			}
		}
		return nil
	})
}

// reasons returns the value of every constant of type Reason.
func reasons(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../api/v1alpha1/reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				values[text] = true
			}
		}
		return true
	})
	return values
}

// counted returns the sum of a metric over all controllers of the operator.
func counted(t *testing.T, name string) int {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return int(sum)
}

// statusWrites counts the status writes so far.
func (f *fixture) statusWrites() int {
	count := 0
	for _, write := range slices.Concat(f.writes.in(f.namespace), f.writes.in(metav1.NamespaceNone)) {
		if strings.HasPrefix(write, "PUT ") && strings.HasSuffix(write, "terminationpolicies/status") {
			count++
		}
	}
	return count
}

// TestMutatedPolicyIsDeniedOrReported changes a policy of each kind repeatedly, in each field of its definition, by allowed and by
// forbidden values, while the operator runs with pods. SEED repeats a run.
func TestMutatedPolicyIsDeniedOrReported(t *testing.T) {
	seed := number(t, "SEED", int(rand.Uint32()))
	t.Logf("SEED=%d", seed)
	g := generator{rand.New(rand.NewPCG(uint64(seed), 0))}
	newKruise(t).Install(t)
	f := newFixture(t)
	options := testOptions()
	options.PrePullNamespace = systemNamespace
	f.startOperator(options)
	running := f.newPod("running")
	f.newPod("finished", podtest.MainDone, podtest.SidecarDone, podtest.Succeeded)
	virtual := f.newNode(virtualKubelet)
	f.newPod("virtual", func(p *corev1.Pod) { p.Spec.NodeName = virtual })
	policies := []*mutated{
		newMutated(f, g, "SidecarTerminationPolicy", "sidecarterminationpolicies", f.namespace),
		newMutated(f, g, "ClusterSidecarTerminationPolicy", "clustersidecarterminationpolicies", ""),
	}
	f.reload(running)
	reconciles, panics, writes := counted(t, "controller_runtime_reconcile_total"), counted(t, "controller_runtime_reconcile_panics_total"), f.statusWrites()

	type target struct {
		*mutated
		field
	}
	var targets []target
	for _, m := range policies {
		for _, field := range m.fields {
			targets = append(targets, target{m, field})
		}
	}
	// Every field is accepted at least once and denied at least once.
	count := max(number(t, "MUTATIONS", defaultMutations), 2*len(targets))
	for i := range count {
		if i%len(targets) == 0 {
			g.Shuffle(len(targets), func(a, b int) { targets[a], targets[b] = targets[b], targets[a] })
		}
		next := targets[i%len(targets)]
		switch i / len(targets) {
		case 0:
			next.validUntilAccepted(next.field)
		case 1:
			next.invalid(next.field)
		default:
			one(g, []func(field){next.valid, next.valid, next.valid, next.invalid, next.unknown, next.nothing})(next.field)
		}
		if i%20 == 0 {
			// Terminated pods need no more action, so the test replaces them.
			for _, node := range []string{f.node, virtual} {
				f.newPod(fmt.Sprintf("done-%d-%s", i, node), podtest.MainDone, func(p *corev1.Pod) { p.Spec.NodeName = node })
			}
		}
		if i%40 == 39 {
			f.removeDone()
		}
		if t.Failed() {
			t.Fatalf("SEED=%d finds it again, at mutation %d", seed, i)
		}
	}

	count = 0
	for _, m := range policies {
		count += sum(m.accepted) + sum(m.rejected)
	}
	f.quiet(reasons(t))
	if got := counted(t, "controller_runtime_reconcile_total") - reconciles; got > count*maxReconciles {
		t.Errorf("%d reconciles for %d mutations", got, count)
	} else {
		t.Logf("%d mutations: %d reconciles, %d writes of statuses", count, got, f.statusWrites()-writes)
	}
	if got := f.statusWrites() - writes; got > count*maxStatusWrites {
		t.Errorf("%d writes of statuses for %d mutations", got, count)
	}
	if got := counted(t, "controller_runtime_reconcile_panics_total") - panics; got > 0 {
		t.Errorf("the operator panicked %d times", got)
	}
	f.untouched(running)
	f.nothingWentWrong()
	for _, m := range policies {
		m.covered()
	}
}

// removeDone deletes the pods whose main container has ended.
func (f *fixture) removeDone() {
	f.Helper()
	var pods corev1.PodList
	if err := f.List(f.Context(), &pods, client.InNamespace(f.namespace)); err != nil {
		f.Fatal(err)
	}
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, "done-") {
			f.remove(&pods.Items[i])
		}
	}
}

// quiet checks that an idle operator does nothing. It creates policies that select nothing, as markers: the report on each shows
// that the operator runs.
func (f *fixture) quiet(known map[string]bool) {
	f.Helper()
	marker := 0
	mark := func() {
		f.Helper()
		policy := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "SidecarTerminationPolicy",
			"metadata": map[string]any{"namespace": f.namespace, "name": fmt.Sprintf("marker-%d", marker)},
			"spec":     map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"no": "pod"}}, "mainContainers": []any{"main"}},
		}}
		marker++
		f.create(policy)
		f.untilReported(policy, known)
	}
	const markers = 10
	// Ongoing work ends while markers arrive, after at most that many.
	testenv.Eventually(f.T, "the operator does nothing more", func(context.Context) error {
		reconciles, writes := counted(f.T, "controller_runtime_reconcile_total"), f.statusWrites()
		for range markers {
			mark()
		}
		// Both controllers of policies reconcile each marker, and one of them again after the status period.
		reconciles, writes = counted(f.T, "controller_runtime_reconcile_total")-reconciles, f.statusWrites()-writes
		if reconciles > 4*markers || writes > markers {
			return fmt.Errorf("%d reconciles and %d writes of statuses for %d markers", reconciles, writes, markers)
		}
		return nil
	})
}

// covered fails if a field was never accepted, or never denied.
func (m *mutated) covered() {
	m.Helper()
	for _, field := range m.fields {
		name := field.String()
		if m.rejected[name] == 0 || m.accepted[name] == 0 {
			m.Errorf("%s: %s was accepted %d times and rejected %d times", m.kind, name, m.accepted[name], m.rejected[name])
		}
	}
	rules := slices.DeleteFunc(slices.Sorted(maps.Keys(m.rules)), func(message string) bool { return m.rules[message] })
	m.Logf("%s: %d fields, %d mutations accepted and %d rejected; %d of %d rules denied something, not these: %q", m.kind, len(m.fields),
		sum(m.accepted), sum(m.rejected), len(m.rules)-len(rules), len(m.rules), rules)
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}
