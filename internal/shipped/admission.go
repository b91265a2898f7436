// SPDX-License-Identifier: Apache-2.0

// Package shipped compares the admission policies in a cluster with those that this version ships. Its callers read the objects.
package shipped

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// namesPrefix is what the names of config/default begin with.
const namesPrefix = "sidecar-termination-"

// OutcomePolicy is the admission policy that decides the outcome of pods, PhasePolicy the one that keeps it, and AuthorsPrefix the prefix of
// those that check the permissions of policy authors. AuthorsOfPrePull is one of them.
const (
	OutcomePolicy    = namesPrefix + "outcome"
	PhasePolicy      = namesPrefix + "phase"
	AuthorsPrefix    = namesPrefix + "mode-"
	AuthorsOfPrePull = AuthorsPrefix + "pre-pull"
)

// AdmissionPolicy is an admission policy of config/admission with its binding. Both have the same name.
type AdmissionPolicy struct {
	// Name is the name in config/default.
	Name string
	// Effect is what its absence causes.
	Effect  string
	objects []unstructured.Unstructured
}

// Short is the name without what the names of all admission policies begin with.
func (p AdmissionPolicy) Short() string { return strings.TrimPrefix(p.Name, namesPrefix) }

// File is the file of config with the policy and its binding.
func (p AdmissionPolicy) File() string {
	return "admission/" + strings.ReplaceAll(p.Short(), "-", "_") + ".yaml"
}

// AdmissionPolicies returns the admission policies that an operator with the capabilities needs.
func AdmissionPolicies(capabilities plan.Capabilities) ([]AdmissionPolicy, error) {
	objects, err := config.AdmissionPolicies()
	if err != nil {
		return nil, err
	}
	needed := []AdmissionPolicy{
		{Name: OutcomePolicy, Effect: "the operator decides the outcome of pods, and exit codes of sidecars count while it is away or slow"},
		{Name: PhasePolicy, Effect: "a kubelet that reports late may take back an outcome that the operator has decided"},
		{Name: namesPrefix + "marks", Effect: "anyone who may patch pods can change the marks that decide how a pod ends"},
		{Name: namesPrefix + "operator-limits", Effect: "only RBAC limits what the operator's ServiceAccount can do to pods"},
		{Name: namesPrefix + "operator-requests", Effect: "only RBAC limits which CRRs, ImagePullJobs and events the operator's ServiceAccount can write"},
	}
	for _, feature := range settings.Features() {
		if feature.Enabled(capabilities.EnabledModes) {
			needed = append(needed, AdmissionPolicy{Name: namesPrefix + feature.AdmissionPolicy, Effect: "anyone who may write policies can " + feature.Unchecked})
		}
	}
	for i := range needed {
		needed[i].objects = slices.DeleteFunc(slices.Clone(objects), func(o unstructured.Unstructured) bool { return o.GetName() != needed[i].Name })
	}
	return needed, nil
}

// State is the state of an admission policy and its binding.
type State string

// The states. Only a reader of the cluster finds NotServed and Unknown.
const (
	Present State = "Present"
	Missing State = "Missing"
	// NotServed means that the API server does not know the kind: MutatingAdmissionPolicies are served from Kubernetes 1.36 on.
	NotServed    State = "NotServed"
	Changed      State = "Changed"
	BeingDeleted State = "BeingDeleted"
	Unknown      State = "Unknown"
)

// Unguarded reports whether neither the policy that decides outcomes nor the one that keeps them is in the cluster. The states are by name.
func Unguarded(states map[string]State) bool {
	absent := func(name string) bool { return states[name] == Missing || states[name] == NotServed }
	return absent(OutcomePolicy) && absent(PhasePolicy)
}

// Status is the state of an admission policy with its reasons.
type Status struct {
	State State
	// Differences are the fields that differ from what this version ships.
	Differences []string
	// OtherAccount means that the policy does not apply to the ServiceAccount that runs the operator.
	OtherAccount bool
}

// Objects returns the policy and its binding as they are named in the installation, without content.
func (p AdmissionPolicy) Objects(in Installation) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range p.objects {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(p.objects[i].GroupVersionKind())
		object.SetName(in.Name(p.Name))
		all = append(all, object)
	}
	return all
}

// Compare compares the objects of Objects, as they were read, with what this version ships. An object that does not exist is nil.
func (p AdmissionPolicy) Compare(in Installation, installed []*unstructured.Unstructured) Status {
	if slices.Contains(installed, nil) {
		return Status{State: Missing}
	}
	status := Status{State: Present}
	for i, object := range installed {
		for _, field := range in.differences("spec", p.objects[i].Object["spec"], object.Object["spec"]) {
			status.Differences = append(status.Differences, object.GetKind()+" "+field)
		}
		status.OtherAccount = status.OtherAccount || in.Account != "" && excludesAccount(object.Object["spec"], in.user())
		if object.GetDeletionTimestamp() != nil {
			status.State = BeingDeleted
		}
	}
	if status.State == Present && (len(status.Differences) > 0 || status.OtherAccount) {
		status.State = Changed
	}
	return status
}

// accountPattern finds the pattern by which an expression recognizes the operator.
var accountPattern = regexp.MustCompile(`request\.userInfo\.username\.matches\('([^']*)'\)`)

// excludesAccount reports whether an expression recognizes the operator by a pattern that does not match the user.
func excludesAccount(spec any, user string) bool {
	// The formatted value has every expression as it is.
	for _, match := range accountPattern.FindAllStringSubmatch(fmt.Sprint(spec), -1) {
		if pattern, err := regexp.Compile(match[1]); err != nil || !pattern.MatchString(user) {
			return true
		}
	}
	return false
}
