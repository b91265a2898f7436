// SPDX-License-Identifier: Apache-2.0

// Package admissiontest evaluates the admission policies of this project in the process of a test, with the API server's own code.
package admissiontest

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
)

// Pods is the resource of pods.
var Pods = corev1.SchemeGroupVersion.WithResource("pods")

// Request is a write to the API server. A created object has no Old, and a deleted one no New.
type Request struct {
	Operation   admission.Operation
	Resource    schema.GroupVersionResource
	Subresource string
	// Old and New may be typed or unstructured. They are not changed.
	Old, New runtime.Object
	// User is the author. Expressions ask Authorizer for the author's permissions; nil grants none.
	User       user.Info
	Authorizer authorizer.UnconditionalAuthorizer
}

// Policy is an admission policy of either kind.
type Policy interface {
	admissionv1.ValidatingAdmissionPolicy | admissionv1.MutatingAdmissionPolicy
}

// Shipped returns the admission policy with the name from config/admission.
func Shipped[P Policy](name string) (*P, error) {
	objects, err := config.AdmissionPolicies()
	if err != nil {
		return nil, err
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", *new(P)), "v1.")
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			policy := new(P)
			return policy, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, policy, true)
		}
	}
	return nil, fmt.Errorf("config/admission has no %s %s", kind, name)
}

// Validating is a compiled ValidatingAdmissionPolicy.
type Validating struct {
	constraints
	validator validating.Validator
}

// CompileValidating compiles the policy as compilePolicy in k8s.io/apiserver/pkg/admission/plugin/policy/validating does. An expression
// that does not compile fails each request.
func CompileValidating(policy *admissionv1.ValidatingAdmissionPolicy) (*Validating, error) {
	c, err := newConstraints(policy.Spec.MatchConstraints)
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler, matcher, err := compile(policy.Name, policy.Spec.Variables, policy.Spec.MatchConditions, policy.Spec.FailurePolicy, options)
	if err != nil {
		return nil, err
	}
	var conditions, messages []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		conditions = append(conditions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	return &Validating{constraints: c, validator: validating.NewValidator(
		compiler.CompileCondition(conditions, options, environment.StoredExpressions), matcher,
		compiler.CompileCondition(nil, options, environment.StoredExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions),
		policy.Spec.FailurePolicy, nil,
	)}, nil
}

// Validate reports whether the policy allows the request, and its message if it does not. It fails if an expression cannot be evaluated.
// The namespace's own labels are unknown to the policy.
func (v *Validating) Validate(ctx context.Context, request Request) (allowed bool, message string, err error) {
	attributes, err := request.attributes()
	if err != nil || !v.match(attributes) {
		return true, "", err
	}
	result := v.validator.Validate(ctx, request.Resource, attributes, nil, nil, celconfig.RuntimeCELCostBudget, request.authorizer())
	for _, decision := range result.Decisions {
		switch {
		case decision.Evaluation == validating.EvalError:
			return false, "", fmt.Errorf("evaluate: %s", decision.Message)
		case decision.Action == validating.ActionDeny && message == "":
			message = decision.Message
		}
	}
	return message == "", message, nil
}

// Mutating is a compiled MutatingAdmissionPolicy with one JSON patch.
type Mutating struct {
	constraints
	compiler *plugincel.CompositedCompiler
	matcher  matchconditions.Matcher
	patcher  patch.Patcher
}

// CompileMutating compiles the policy as compilePolicy in k8s.io/apiserver/pkg/admission/plugin/policy/mutating does. An expression that
// does not compile fails each request.
func CompileMutating(policy *admissionv1.MutatingAdmissionPolicy) (*Mutating, error) {
	c, err := newConstraints(policy.Spec.MatchConstraints)
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	failurePolicy := admissionv1.Fail
	compiler, matcher, err := compile(policy.Name, policy.Spec.Variables, policy.Spec.MatchConditions, &failurePolicy, options)
	if err != nil {
		return nil, err
	}
	options.HasPatchTypes = true
	expression := &patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}
	patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(expression, options, environment.StoredExpressions))
	return &Mutating{constraints: c, compiler: compiler, matcher: matcher, patcher: patcher}, nil
}

// Mutate returns the object that the API server stores, of the same type as the request's. It fails if an expression cannot be evaluated,
// whatever the policy's failurePolicy.
func (m *Mutating) Mutate(ctx context.Context, request Request) (runtime.Object, error) {
	attributes, err := request.attributes()
	if err != nil || !m.match(attributes) {
		return request.New, err
	}
	ctx = m.compiler.CreateContext(ctx)
	if match := m.matcher.Match(ctx, attributes, nil, request.authorizer()); match.Error != nil || !match.Matches {
		return request.New, match.Error
	}
	return m.patcher.Patch(ctx, patch.Request{
		MatchedResource: request.Resource, VersionedAttributes: attributes, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme),
		OptionalVariables: plugincel.OptionalVariableBindings{Authorizer: request.authorizer()},
	}, celconfig.RuntimeCELCostBudget)
}

// compile compiles what both kinds of policies have.
func compile(
	name string, variables []admissionv1.Variable, conditions []admissionv1.MatchCondition, failurePolicy *admissionv1.FailurePolicyType,
	options plugincel.OptionalVariableDeclarations,
) (*plugincel.CompositedCompiler, matchconditions.Matcher, error) {
	compiler, err := plugincel.NewCompositedCompiler(environmentSet)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.StoredExpressions)
	}
	var accessors []plugincel.ExpressionAccessor
	for i := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	evaluator := compiler.CompileCondition(accessors, options, environment.StoredExpressions)
	return compiler, matchconditions.NewMatcher(evaluator, failurePolicy, "policy", "validate", name), nil
}

var environmentSet = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())

// constraints are the rules and the selector of an admission policy. Bindings and namespaces select everything.
type constraints struct {
	included, excluded []admissionv1.NamedRuleWithOperations
	selector           labels.Selector
}

func newConstraints(resources *admissionv1.MatchResources) (constraints, error) {
	selector := resources.ObjectSelector
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return constraints{included: resources.ResourceRules, excluded: resources.ExcludeResourceRules, selector: parsed}, err
}

func (c constraints) match(attributes *admission.VersionedAttributes) bool {
	matches := func(named []admissionv1.NamedRuleWithOperations) bool {
		for _, rule := range named {
			if (&rules.Matcher{Rule: rule.RuleWithOperations, Attr: attributes}).Matches() {
				return true
			}
		}
		return false
	}
	selects := func(object runtime.Object) bool {
		accessor, err := meta.Accessor(object)
		return err == nil && c.selector.Matches(labels.Set(accessor.GetLabels()))
	}
	return matches(c.included) && !matches(c.excluded) && (selects(attributes.GetOldObject()) || selects(attributes.GetObject()))
}

// scheme has the kinds of this project and of Kubernetes.
var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}()

func (r Request) attributes() (*admission.VersionedAttributes, error) {
	oldObject, err := withKind(r.Old)
	if err != nil {
		return nil, err
	}
	object, err := withKind(r.New)
	if err != nil {
		return nil, err
	}
	subject := object
	if subject == nil {
		subject = oldObject
	}
	accessor, err := meta.Accessor(subject)
	if err != nil {
		return nil, err
	}
	options := map[admission.Operation]runtime.Object{
		admission.Create: &metav1.CreateOptions{}, admission.Update: &metav1.UpdateOptions{}, admission.Delete: &metav1.DeleteOptions{},
	}[r.Operation]
	author := r.User
	if author == nil {
		author = &user.DefaultInfo{}
	}
	kind := subject.GetObjectKind().GroupVersionKind()
	attributes := admission.NewAttributesRecord(object, oldObject, kind, accessor.GetNamespace(), accessor.GetName(), r.Resource, r.Subresource,
		r.Operation, options, false, author)
	return admission.NewVersionedAttributes(attributes, kind, admission.NewObjectInterfacesFromScheme(scheme))
}

// withKind returns a copy of the object that says its kind, as expressions may read it.
func withKind(object runtime.Object) (runtime.Object, error) {
	if object == nil {
		return nil, nil
	}
	kinds, _, err := scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	return object, nil
}

func (r Request) authorizer() authorizer.UnconditionalAuthorizer {
	if r.Authorizer == nil {
		return Permissions{}
	}
	return r.Authorizer
}
