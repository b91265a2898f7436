// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/cli/admission"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Files are manifests: -f, -R and -k of kubectl.
type Files struct {
	resource.FilenameOptions
}

// Bind adds the flags.
func (f *Files) Bind(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.Filenames, "filename", "f", nil, "file, directory or URL with manifests, or - for standard input; may be repeated. No cluster is asked")
	flags.BoolVarP(&f.Recursive, "recursive", "R", false, "go through the directories of -f recursively")
	flags.StringVarP(&f.Kustomize, "kustomize", "k", "", "directory or URL of a kustomization to build. No cluster is asked")
}

// Given reports whether manifests are to be looked at.
func (f *Files) Given() bool { return len(f.Filenames) > 0 || f.Kustomize != "" }

// Manifests are the objects in files.
type Manifests struct {
	Objects []Manifest
	// PassedOver has the kind of each object that makes pods and is not looked at.
	PassedOver []schema.GroupVersionKind
	// Refused are policies that the API server would refuse. They are not among the objects.
	Refused []Refused
}

// Refused is a policy that the API server would refuse, where it was found, and why.
type Refused struct {
	Policy resolve.PolicyRef
	File   string
	Why    []string
}

// Manifest is one object and where it was found.
type Manifest struct {
	Object client.Object
	File   string
}

// Read reads the objects of the files. Those of kinds that are not looked at are left out, and policies that
// the API server would refuse are kept apart. Objects without a namespace get the given one.
func (f *Files) Read(ctx context.Context, stdin io.Reader, namespace string) (Manifests, error) {
	scheme, err := NewScheme()
	if err != nil {
		return Manifests{}, err
	}
	builder := resource.NewLocalBuilder().Unstructured().Local().Flatten().ContinueOnError()
	files := f.FilenameOptions
	if i := slices.Index(files.Filenames, "-"); i >= 0 {
		files.Filenames = slices.Delete(slices.Clone(files.Filenames), i, i+1)
		builder = builder.Stream(stdin, "standard input")
	}
	infos, err := builder.FilenameParam(false, &files).Do().Infos()
	if err != nil {
		return Manifests{}, fmt.Errorf("read manifests: %w", err)
	}
	var all Manifests
	for _, info := range infos {
		refused, err := refusal(ctx, info.Object, namespace)
		if err != nil {
			return all, fmt.Errorf("check %s: %w", info.Source, err)
		}
		if refused != nil {
			refused.File = info.Source
			all.Refused = append(all.Refused, *refused)
			continue
		}
		object, err := toTyped(scheme, info.Object)
		if err != nil {
			return all, fmt.Errorf("read %s: %w", info.Source, err)
		}
		if object == nil {
			if raw, ok := info.Object.(*unstructured.Unstructured); ok && makesPods(raw) {
				all.PassedOver = append(all.PassedOver, raw.GroupVersionKind())
			}
			continue
		}
		if object.GetNamespace() == "" && isNamespaced(object) {
			object.SetNamespace(namespace)
		}
		all.Objects = append(all.Objects, Manifest{object, info.Source})
	}
	return all, nil
}

// refusal returns why the API server would refuse an object if it is a policy, and nil where it would not. A policy without
// a namespace gets the given one.
func refusal(ctx context.Context, object runtime.Object, namespace string) (*Refused, error) {
	policy, ok := object.(*unstructured.Unstructured)
	if !ok || policy.GroupVersionKind().Group != policyGroup {
		return nil, nil
	}
	ref := resolve.PolicyRef{Kind: resolve.PolicyKind(policy.GetKind()), Name: policy.GetName()}
	if ref.Kind == resolve.KindNamespaced {
		if policy.GetNamespace() == "" {
			policy.SetNamespace(namespace)
		}
		ref.Namespace = policy.GetNamespace()
	}
	problems, err := admission.Check(ctx, policy)
	if err != nil || len(problems) == 0 {
		return nil, err
	}
	refused := &Refused{Policy: ref}
	for _, problem := range problems {
		refused.Why = append(refused.Why, problem.Error())
	}
	return refused, nil
}

// toTyped converts an object of a kind that bears on something, and returns nil for any other.
func toTyped(scheme *runtime.Scheme, object runtime.Object) (client.Object, error) {
	raw, ok := object.(*unstructured.Unstructured)
	if !ok || !bears(raw) {
		return nil, nil
	}
	typed, err := scheme.New(raw.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("understand %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("understand %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	switch object := typed.(type) {
	case *corev1.Pod:
		withDefaults(object)
	case *corev1.Namespace:
		withName(object)
	}
	return typed.(client.Object), nil
}

// Source is one look at the manifests, with the flags of the operator as given.
func (m Manifests) Source(operator Operator, flags *pflag.FlagSet) (*Source, error) {
	settings, err := operator.Parse(operator.given(flags))
	if err != nil {
		return nil, err
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	reader := &memory{scheme: scheme}
	for _, manifest := range m.Objects {
		reader.objects = append(reader.objects, manifest.Object)
	}
	s := &Source{Reader: reader, Settings: settings, Cluster: explain.Cluster{}, Offline: true, now: operator.Now(), program: operator.Program}
	s.assumed = m.missingNamespaces()
	for _, name := range sets.List(s.assumed) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		withName(namespace)
		reader.objects = append(reader.objects, namespace)
	}
	if len(m.PassedOver) > 0 {
		s.notes = append(s.notes, notePassedOver(m.PassedOver))
	}
	return s, nil
}
