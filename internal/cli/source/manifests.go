// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
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
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Files are manifests: -f, -R and -k of kubectl.
type Files struct {
	resource.FilenameOptions
}

// Bind adds the flags.
func (f *Files) Bind(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.Filenames, "filename", "f", nil, "file, directory or URL with manifests, or - for standard input; may be repeated. Does not connect to a cluster")
	flags.BoolVarP(&f.Recursive, "recursive", "R", false, "read the directories of -f recursively")
	flags.StringVarP(&f.Kustomize, "kustomize", "k", "", "directory or URL of a kustomization to build. Does not connect to a cluster")
}

// Given reports whether the user gave manifests.
func (f *Files) Given() bool { return len(f.Filenames) > 0 || f.Kustomize != "" }

// Manifests are the objects in files.
type Manifests struct {
	Objects []Manifest
	// IgnoredKinds has the kind of each ignored object that may create pods.
	IgnoredKinds []schema.GroupVersionKind
	// Rejected are the policies that the API server would reject. They are not in Objects.
	Rejected []Rejection
}

// Rejection is a policy that the API server would reject, its file and the errors.
type Rejection struct {
	Policy resolve.PolicyRef
	File   string
	Errors []string
}

// Manifest is one object and its file.
type Manifest struct {
	Object client.Object
	// Raw is the object as in the file, with fields that this program does not know. It must not be modified.
	Raw  *unstructured.Unstructured
	File string
}

// Read reads the objects in the files. Objects without a namespace get the given one.
func (f *Files) Read(ctx context.Context, stdin io.Reader, namespace string) (Manifests, error) {
	types, err := scheme.New()
	if err != nil {
		return Manifests{}, err
	}
	builder := localBuilder()
	files := f.FilenameOptions
	if i := slices.Index(files.Filenames, "-"); i >= 0 {
		files.Filenames = slices.Delete(slices.Clone(files.Filenames), i, i+1)
		builder = builder.Stream(stdin, "standard input")
	}
	return decode(ctx, types, builder.FilenameParam(false, &files), namespace)
}

// Text is the content of a file with manifests.
type Text struct {
	Name string
	Data []byte
}

// ReadTexts reads the objects in the texts. Objects without a namespace get the given one.
func ReadTexts(ctx context.Context, texts []Text, namespace string) (Manifests, error) {
	types, err := scheme.New()
	if err != nil || len(texts) == 0 {
		return Manifests{}, err
	}
	builder := localBuilder()
	for _, text := range texts {
		builder = builder.Stream(bytes.NewReader(text.Data), text.Name)
	}
	return decode(ctx, types, builder, namespace)
}

func localBuilder() *resource.Builder {
	return resource.NewLocalBuilder().Unstructured().Local().Flatten().ContinueOnError()
}

// decode decodes and checks the objects that the builder reads.
func decode(ctx context.Context, types *runtime.Scheme, builder *resource.Builder, namespace string) (Manifests, error) {
	infos, err := builder.Do().Infos()
	if err != nil {
		return Manifests{}, fmt.Errorf("read manifests: %w", err)
	}
	var all Manifests
	for _, info := range infos {
		rejected, err := validatePolicy(ctx, info.Object, namespace)
		if err != nil {
			return all, fmt.Errorf("check %s: %w", info.Source, err)
		}
		if rejected != nil {
			rejected.File = info.Source
			all.Rejected = append(all.Rejected, *rejected)
			continue
		}
		object, err := toTyped(types, info.Object)
		if err != nil {
			return all, fmt.Errorf("read %s: %w", info.Source, err)
		}
		raw, ok := info.Object.(*unstructured.Unstructured)
		if object == nil {
			if ok && makesPods(raw) {
				all.IgnoredKinds = append(all.IgnoredKinds, raw.GroupVersionKind())
			}
			continue
		}
		if object.GetNamespace() == "" && isNamespaced(object) {
			object.SetNamespace(namespace)
		}
		all.Objects = append(all.Objects, Manifest{object, raw, info.Source})
	}
	return all, nil
}

// validatePolicy returns the errors with which the API server would reject a policy, and nil for valid policies and other
// objects. A policy without a namespace gets the given one.
func validatePolicy(ctx context.Context, object runtime.Object, namespace string) (*Rejection, error) {
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
	rejected := &Rejection{Policy: ref}
	for _, problem := range problems {
		rejected.Errors = append(rejected.Errors, problem.Error())
	}
	return rejected, nil
}

// toTyped converts an object of a relevant kind, and returns nil for any other.
func toTyped(types *runtime.Scheme, object runtime.Object) (client.Object, error) {
	raw, ok := object.(*unstructured.Unstructured)
	if !ok || !isRelevant(raw) {
		return nil, nil
	}
	typed, err := types.New(raw.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	switch object := typed.(type) {
	case *corev1.Pod:
		withDefaults(object)
	case *corev1.Namespace:
		withName(object)
	}
	return typed.(client.Object), nil
}

// Source returns the source that reads the manifests, with the operator's flags from the command line.
func (m Manifests) Source(program Program, flags *pflag.FlagSet) (*Source, error) {
	operator, err := settings.Parse(givenFlags(flags))
	if err != nil {
		return nil, err
	}
	types, err := scheme.New()
	if err != nil {
		return nil, err
	}
	reader := &memory{scheme: types}
	for _, manifest := range m.Objects {
		reader.objects = append(reader.objects, manifest.Object)
	}
	s := &Source{Reader: reader, Settings: operator, Cluster: explain.Cluster{}, Offline: true, now: program.Now(), program: program.Name}
	s.assumed = m.missingNamespaces()
	for _, name := range sets.List(s.assumed) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		withName(namespace)
		reader.objects = append(reader.objects, namespace)
	}
	if len(m.IgnoredKinds) > 0 {
		s.notes = append(s.notes, noteIgnoredKinds(m.IgnoredKinds))
	}
	return s, nil
}
