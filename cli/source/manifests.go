// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Files are manifests: -f, -R and -k of kubectl, and those of the operator.
type Files struct {
	resource.FilenameOptions
	// Install is a file with the operator's Deployment, or empty.
	Install string
}

// Bind adds the flags.
func (f *Files) Bind(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.Filenames, "filename", "f", nil, "file, directory or URL with manifests, or - for standard input; may be repeated. Does not connect to a cluster")
	flags.BoolVarP(&f.Recursive, "recursive", "R", false, "read the directories of -f recursively")
	flags.StringVarP(&f.Kustomize, "kustomize", "k", "", "directory or URL of a kustomization to build. Does not connect to a cluster")
	flags.StringVar(&f.Install, "install", "", "with -f or -k: file, directory or URL with the operator's manifests, whose flags are used; by default its Deployment in -f or -k, or the default installation")
}

// Check returns an error for flags that do not fit together.
func (f *Files) Check() error {
	if f.Install != "" && !f.Given() {
		return errors.New("--install requires -f or -k: without them the flags of the operator in the cluster are used")
	}
	return nil
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
	// Others are the objects of kinds that are not decoded. They have no Object.
	Others []Manifest
	// Unreadable are the objects of other kinds that cannot be decoded. They have no Object.
	Unreadable []Unreadable
	// operators are the Deployments of the operator in the files. arguments are those of the assumed operator.
	operators []*appsv1.Deployment
	arguments []string
	notes     []string

	types     *runtime.Scheme
	namespace string // of objects without one
}

// Unreadable is a manifest that cannot be decoded, and the error.
type Unreadable struct {
	Manifest
	Err error
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
	// Position is the place among all objects.
	Position int
}

// Read reads the objects in the files, and the flags of the operator. Objects without a namespace get the given one. An object that
// cannot be decoded is an error.
func (f *Files) Read(ctx context.Context, stdin io.Reader, namespace string) (Manifests, error) {
	return strict(f.ReadAll(ctx, stdin, namespace))
}

// strict returns the error of the first object that cannot be decoded.
func strict(all Manifests, err error) (Manifests, error) {
	if err == nil && len(all.Unreadable) > 0 {
		first := all.Unreadable[0]
		err = fmt.Errorf("read %s: %w", first.File, first.Err)
	}
	return all, err
}

// ReadAll is Read for callers that report on objects that cannot be decoded.
func (f *Files) ReadAll(ctx context.Context, stdin io.Reader, namespace string) (Manifests, error) {
	types, err := scheme.New()
	if err != nil {
		return Manifests{}, err
	}
	all, err := f.decode(ctx, types, stdin, namespace)
	if err != nil {
		return Manifests{}, err
	}
	operators := all.operators
	if f.Install != "" {
		files := resource.FilenameOptions{Filenames: []string{f.Install}}
		install, err := decode(ctx, types, localBuilder().FilenameParam(false, &files), namespace)
		if err != nil {
			return Manifests{}, fmt.Errorf("--install: %w", err)
		}
		if operators = install.operators; len(operators) == 0 {
			return Manifests{}, fmt.Errorf("--install: %s has no Deployment of the operator: one with label %s=%s and a container %s",
				f.Install, operatorLabel, settings.Name, settings.ContainerName)
		}
	}
	err = all.assume(operators)
	return all, err
}

// assume sets the arguments of the operator to those of the first Deployment, or of a default installation.
func (m *Manifests) assume(operators []*appsv1.Deployment) error {
	if len(operators) == 0 {
		m.arguments = settings.InstalledArguments()
		return nil
	}
	first := operators[0].Namespace + "/" + operators[0].Name
	if len(operators) > 1 {
		m.notes = append(m.notes, fmt.Sprintf("found %d Deployments of the operator: the flags of %s are used; name the file of another one with --install", len(operators), first))
	}
	m.arguments, _ = OperatorArguments(operators[0])
	if _, err := settings.Parse(m.arguments); err != nil {
		return fmt.Errorf("read the flags of Deployment %s: %w", first, err)
	}
	return nil
}

func (f *Files) decode(ctx context.Context, types *runtime.Scheme, stdin io.Reader, namespace string) (Manifests, error) {
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

// ReadTexts reads the objects in the texts. Objects without a namespace get the given one. The operator has no flags besides those
// of the command line.
func ReadTexts(ctx context.Context, texts []Text, namespace string) (Manifests, error) {
	types, err := scheme.New()
	if err != nil || len(texts) == 0 {
		return Manifests{}, err
	}
	builder := localBuilder()
	for _, text := range texts {
		builder = builder.Stream(bytes.NewReader(text.Data), text.Name)
	}
	return strict(decode(ctx, types, builder, namespace))
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
	all := Manifests{types: types, namespace: namespace}
	for position, info := range infos {
		rejected, err := validatePolicy(ctx, info.Object, namespace)
		if err != nil {
			return all, fmt.Errorf("check %s: %w", info.Source, err)
		}
		if rejected != nil {
			rejected.File = info.Source
			all.Rejected = append(all.Rejected, *rejected)
			continue
		}
		if raw, ok := info.Object.(*unstructured.Unstructured); ok {
			all.add(Manifest{Raw: raw, File: info.Source, Position: position})
		}
	}
	return all, nil
}

// add decodes the object and adds it.
func (m *Manifests) add(manifest Manifest) {
	raw := manifest.Raw
	object, err := toTyped(m.types, raw)
	switch {
	case err != nil:
		m.Unreadable = append(m.Unreadable, Unreadable{manifest, err})
		return
	case object == nil:
		if makesPods(raw) {
			m.IgnoredKinds = append(m.IgnoredKinds, raw.GroupVersionKind())
		}
		if raw.GetNamespace() == "" {
			raw.SetNamespace(m.namespace)
		}
		m.Others = append(m.Others, manifest)
		return
	case object.GetNamespace() == "" && isNamespaced(object):
		object.SetNamespace(m.namespace)
	}
	if deployment, ok := object.(*appsv1.Deployment); ok {
		if _, ok := OperatorArguments(deployment); ok {
			m.operators = append(m.operators, deployment)
		}
		return
	}
	manifest.Object = object
	m.Objects = append(m.Objects, manifest)
}

// IsEmpty reports whether there is no object at all.
func (m Manifests) IsEmpty() bool {
	return len(m.Objects)+len(m.Others)+len(m.Rejected)+len(m.Unreadable)+len(m.operators) == 0
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
	problems, err := validate(ctx, policy)
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
func toTyped(types *runtime.Scheme, raw *unstructured.Unstructured) (client.Object, error) {
	if !isRelevant(raw) {
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

// Source returns the source that reads the manifests. Flags on the command line override the operator's flags.
func (m Manifests) Source(program Program, flags *pflag.FlagSet) (*Source, error) {
	operator, err := settings.Parse(slices.Concat(m.arguments, givenFlags(flags)))
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
	s := &Source{Reader: reader, Settings: operator, Cluster: explain.Cluster{}, Offline: true, now: program.Now(), program: program, notes: slices.Clone(m.notes)}
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
