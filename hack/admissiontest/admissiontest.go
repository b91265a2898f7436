// SPDX-License-Identifier: Apache-2.0

// Package admissiontest evaluates the admission policies of this project in the process of a test, with the API server's own code.
package admissiontest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
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
	definition generic.PolicyAccessor
	validator  validating.Validator
}

// CompileValidating compiles the policy as compilePolicy in k8s.io/apiserver/pkg/admission/plugin/policy/validating does. An expression
// that does not compile fails each request.
func CompileValidating(policy *admissionv1.ValidatingAdmissionPolicy) (*Validating, error) {
	compiler, conditions, err := compile(policy.Name, policy.Spec.Variables, policy.Spec.MatchConditions, policy.Spec.FailurePolicy)
	if err != nil {
		return nil, err
	}
	var validations, messages []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	return &Validating{definition: validating.NewValidatingAdmissionPolicyAccessor(policy), validator: validating.NewValidator(
		compiler.CompileCondition(validations, options, environment.StoredExpressions), conditions,
		compiler.CompileCondition(nil, options, environment.StoredExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions),
		policy.Spec.FailurePolicy, nil,
	)}, nil
}

// Validate reports whether the policy allows the request, and its message if it does not. It fails if an expression cannot be evaluated.
// The namespace's own labels are unknown to the policy.
func (v *Validating) Validate(ctx context.Context, request Request) (allowed bool, message string, err error) {
	attributes, matches, err := request.attributes(v.definition)
	if err != nil || !matches {
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
	definition generic.PolicyAccessor
	compiler   *plugincel.CompositedCompiler
	conditions matchconditions.Matcher
	patcher    patch.Patcher
}

// CompileMutating compiles the policy as compilePolicy in k8s.io/apiserver/pkg/admission/plugin/policy/mutating does. An expression that
// does not compile fails each request.
func CompileMutating(policy *admissionv1.MutatingAdmissionPolicy) (*Mutating, error) {
	failurePolicy := admissionv1.Fail
	compiler, conditions, err := compile(policy.Name, policy.Spec.Variables, policy.Spec.MatchConditions, &failurePolicy)
	if err != nil {
		return nil, err
	}
	patchOptions := options
	patchOptions.HasPatchTypes = true
	expression := &patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}
	patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(expression, patchOptions, environment.StoredExpressions))
	return &Mutating{definition: mutating.NewMutatingAdmissionPolicyAccessor(policy), compiler: compiler, conditions: conditions, patcher: patcher}, nil
}

// Mutate returns the object that the API server stores, of the same type as the request's. It fails if an expression cannot be evaluated,
// whatever the policy's failurePolicy.
func (m *Mutating) Mutate(ctx context.Context, request Request) (runtime.Object, error) {
	attributes, matches, err := request.attributes(m.definition)
	if err != nil || !matches {
		return request.New, err
	}
	ctx = m.compiler.CreateContext(ctx)
	if match := m.conditions.Match(ctx, attributes, nil, request.authorizer()); match.Error != nil || !match.Matches {
		return request.New, match.Error
	}
	return m.patcher.Patch(ctx, patch.Request{
		MatchedResource: request.Resource, VersionedAttributes: attributes, ObjectInterfaces: interfaces,
		OptionalVariables: plugincel.OptionalVariableBindings{Authorizer: request.authorizer()},
	}, celconfig.RuntimeCELCostBudget)
}

// compile compiles what both kinds of policies have.
func compile(
	name string, variables []admissionv1.Variable, conditions []admissionv1.MatchCondition, failurePolicy *admissionv1.FailurePolicyType,
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

var (
	environmentSet = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	options        = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
)

// matcher applies the rules and the selector of objects. Bindings are not read, and the policies of this project select all namespaces.
var matcher = generic.NewPolicyMatcher(matching.NewMatcher(nil, nil))

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

var interfaces = admission.NewObjectInterfacesFromScheme(scheme)

// attributes returns the request as the API server passes it to policies, and whether the rules of one match it.
func (r Request) attributes(definition generic.PolicyAccessor) (*admission.VersionedAttributes, bool, error) {
	oldObject, oldErr := withKind(r.Old)
	object, err := withKind(r.New)
	if err := errors.Join(oldErr, err); err != nil {
		return nil, false, err
	}
	subject := cmp.Or(object, oldObject)
	accessor, err := meta.Accessor(subject)
	if err != nil {
		return nil, false, err
	}
	options := map[admission.Operation]runtime.Object{
		admission.Create: &metav1.CreateOptions{}, admission.Update: &metav1.UpdateOptions{}, admission.Delete: &metav1.DeleteOptions{},
	}[r.Operation]
	kind := subject.GetObjectKind().GroupVersionKind()
	record := admission.NewAttributesRecord(object, oldObject, kind, accessor.GetNamespace(), accessor.GetName(), r.Resource, r.Subresource,
		r.Operation, options, false, cmp.Or[user.Info](r.User, &user.DefaultInfo{}))
	matches, _, _, err := matcher.DefinitionMatches(record, interfaces, definition)
	if err != nil {
		return nil, false, err
	}
	attributes, err := admission.NewVersionedAttributes(record, kind, interfaces)
	return attributes, matches, err
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
	return cmp.Or[authorizer.UnconditionalAuthorizer](r.Authorizer, Permissions{})
}
