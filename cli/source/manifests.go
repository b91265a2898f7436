// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Files are manifests: -f, -R and -k of kubectl.
type Files struct {
	resource.FilenameOptions
	// Correct corrects the mistakes that have one obvious correction, so that the rest of the manifest can be checked. Without it they
	// are errors, as is an object that cannot be decoded.
	Correct bool
}

// Bind adds the flags.
func (f *Files) Bind(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.Filenames, "filename", "f", nil, "file, directory or URL with manifests, or - for standard input; may be repeated. Does not connect to a cluster")
	flags.BoolVarP(&f.Recursive, "recursive", "R", false, "read the directories of -f recursively")
	flags.StringVarP(&f.Kustomize, "kustomize", "k", "", "directory or URL of a kustomization to build. Does not connect to a cluster")
	// They fail only for unknown flags.
	_ = cobra.MarkFlagFilename(flags, "filename", "yaml", "yml", "json")
	_ = cobra.MarkFlagDirname(flags, "kustomize")
}

// Given reports whether the user gave manifests.
func (f *Files) Given() bool { return len(f.Filenames) > 0 || f.Kustomize != "" }

// Take takes arguments as files: all of them after -f, as a shell writes a pattern, and otherwise those that are named like manifests.
// It returns the others.
func (f *Files) Take(arguments []string) (others []string) {
	after := len(f.Filenames) > 0
	for _, argument := range arguments {
		if after || slices.Contains(resource.FileExtensions, path.Ext(argument)) {
			f.Filenames = append(f.Filenames, argument)
		} else {
			others = append(others, argument)
		}
	}
	return others
}

// Manifests are the objects in files.
type Manifests struct {
	// Objects are those that affect decisions, and after them those of kinds that are not decoded, which have no Object and no Mistakes.
	Objects []Manifest
	// Rejected are the policies that the API server would reject, with its errors as mistakes. They are not in Objects.
	Rejected []Manifest
	// others become the last of Objects.
	others []Manifest
	// operators are the Deployments of the operator in the files. arguments are those of the assumed operator.
	operators []*appsv1.Deployment
	arguments []string
	notes     []string
	// Err joins why some files or objects could not be read. The others were.
	Err error
}

// Manifest is one object and its file.
type Manifest struct {
	// Object is nil if the object cannot be decoded. Mistakes, as PATH: MESSAGE, then say why.
	Object   client.Object
	Mistakes []string
	// Raw is the object as in the file, with fields that this program does not know. It must not be modified.
	Raw *unstructured.Unstructured
	// Place is where Files.Read found the object. From Decode it has the file and the position alone.
	Place Place
}

// Policy identifies the policy that the manifest is of.
func (m Manifest) Policy() resolve.PolicyRef {
	return resolve.PolicyRef{Kind: resolve.PolicyKind(m.Raw.GetKind()), Namespace: m.Raw.GetNamespace(), Name: m.Raw.GetName()}
}

// standardInput is the file of objects that were read from standard input.
const standardInput = "standard input"

// Read reads the objects in the files, and the flags of the operator. Objects without a namespace get the given one. It fails if there
// is no object.
func (f *Files) Read(ctx context.Context, stdin io.Reader, namespace string) (Manifests, error) {
	builder := LocalBuilder()
	files := f.FilenameOptions
	var input bytes.Buffer
	if i := slices.Index(files.Filenames, "-"); i >= 0 {
		files.Filenames = slices.Delete(slices.Clone(files.Filenames), i, i+1)
		builder = builder.Stream(io.TeeReader(stdin, &input), standardInput)
	}
	all, err := decode(ctx, builder.FilenameParam(false, &files), namespace, f.Correct, &places{&input, map[string]placesInFile{}})
	if len(all.Objects)+len(all.Rejected)+len(all.operators) == 0 {
		return Manifests{}, cmp.Or(err, errors.New("the manifests contain no object"))
	}
	all.Err = err
	all.locateMistakes()
	if len(all.operators) == 0 {
		all.arguments = settings.InstalledArguments()
		return all, nil
	}
	first := all.operators[0].Namespace + "/" + all.operators[0].Name
	if len(all.operators) > 1 {
		all.notes = []string{fmt.Sprintf("found %d Deployments of the operator: the flags of %s are used", len(all.operators), first)}
	}
	all.arguments, _ = OperatorArguments(all.operators[0])
	if _, err := settings.Parse(all.arguments); err != nil {
		return all, fmt.Errorf("read the flags of Deployment %s: %w", first, err)
	}
	return all, nil
}

// LocalBuilder reads manifests and connects to no cluster.
func LocalBuilder() *resource.Builder {
	return resource.NewLocalBuilder().Unstructured().Local().Flatten().ContinueOnError()
}

// Decode decodes and checks the objects that a LocalBuilder reads. Objects without a namespace get the given one. The operator has no flags
// besides those of the command line. With an error it returns what it could read.
func Decode(ctx context.Context, builder *resource.Builder, namespace string) (Manifests, error) {
	return decode(ctx, builder, namespace, false, nil)
}

// decode is Decode. It corrects mistakes as Files.Correct does, and finds the places of objects unless the last argument is nil.
func decode(ctx context.Context, builder *resource.Builder, namespace string, corrects bool, in *places) (Manifests, error) {
	types, err := scheme.New()
	if err != nil {
		return Manifests{}, err
	}
	infos, err := builder.Do().Infos()
	var all Manifests
	var broken []error
	if err != nil {
		for _, one := range utilerrors.Flatten(utilerrors.NewAggregate([]error{err})).Errors() {
			broken = append(broken, fmt.Errorf("read manifests: %w", one))
		}
	}
	for position, info := range infos {
		raw, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		manifest := Manifest{Raw: raw, Place: Place{File: info.Source}}
		if in != nil {
			manifest.Place = in.next(info.Source, raw)
		}
		manifest.Place.Position = position
		if raw.GetNamespace() == "" && !slices.Contains(clusterScoped, raw.GetKind()) {
			raw.SetNamespace(namespace)
		}
		if err := all.add(ctx, types, manifest, corrects); err != nil {
			broken = append(broken, fmt.Errorf("read %s: %w", info.Source, err))
		}
	}
	all.Objects = append(all.Objects, all.others...)
	return all, errors.Join(broken...)
}

// clusterScoped are the kinds without a namespace among those that affect decisions.
var clusterScoped = []string{"Namespace", "Node", string(resolve.KindCluster)}

// add decodes the object and adds it.
func (m *Manifests) add(ctx context.Context, types *runtime.Scheme, manifest Manifest, corrects bool) error {
	raw := manifest.Raw
	if raw.GroupVersionKind().Group == v1alpha1.GroupName {
		problems, err := validate(ctx, raw)
		if err != nil {
			return err
		}
		for _, problem := range problems {
			manifest.Mistakes = append(manifest.Mistakes, problem.Error())
		}
		if len(problems) > 0 {
			m.Rejected = append(m.Rejected, manifest)
			return nil
		}
	}
	if !isRelevant(raw) {
		m.others = append(m.others, manifest)
		return nil
	}
	raw, mistakes := correct(raw)
	if len(mistakes) > 0 && !corrects {
		return fmt.Errorf("%s %s: %s", raw.GetKind(), raw.GetName(), strings.Join(mistakes, "; "))
	}
	object, unknown, err := toTyped(types, raw)
	switch {
	case err == nil:
		manifest.Object = object
	case corrects:
		unknown = []string{decodeMistake(types, raw, err)}
	default:
		return err
	}
	if corrects {
		manifest.Mistakes = slices.Concat(mistakes, unknown)
	}
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		m.Objects = append(m.Objects, manifest)
	} else if _, ok := OperatorArguments(deployment); ok {
		m.operators = append(m.operators, deployment)
	} else {
		manifest.Object, manifest.Mistakes = nil, nil
		m.others = append(m.others, manifest)
	}
	return nil
}

// isRelevant reports whether the object affects decisions.
func isRelevant(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"),
		batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithKind("CronJob"):
		return true
	case appsv1.SchemeGroupVersion.WithKind("Deployment"):
		return object.GetLabels()[operatorLabel] == settings.Name
	}
	return object.GroupVersionKind().Group == v1alpha1.GroupName
}

// toTyped converts an object that is relevant, sets the API server's defaults that affect decisions, and returns unknown fields as
// mistakes. A status may have fields of a newer version.
func toTyped(types *runtime.Scheme, raw *unstructured.Unstructured) (object client.Object, unknown []string, err error) {
	typed, err := types.New(raw.GroupVersionKind())
	if err != nil {
		return nil, nil, fmt.Errorf("decode %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw.Object, typed, true)
	if strict, isStrict := runtime.AsStrictDecodingError(err); isStrict {
		for _, one := range strict.Errors() {
			path := strings.Trim(strings.TrimPrefix(one.Error(), "unknown field "), `"`)
			if !strings.HasPrefix(path, "status.") {
				unknown = append(unknown, path+": is an unknown field")
			}
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("decode %s %s: %w", raw.GetKind(), raw.GetName(), err)
	}
	switch object := typed.(type) {
	case *corev1.Pod:
		object.Spec.RestartPolicy = cmp.Or(object.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	case *corev1.Namespace:
		metav1.SetMetaDataLabel(&object.ObjectMeta, corev1.LabelMetadataName, object.Name)
	}
	return typed.(client.Object), unknown, nil
}

// Source returns the source that reads the manifests. Flags on the command line override the operator's flags.
func (m Manifests) Source(now func() time.Time, flags *pflag.FlagSet) (*Source, error) {
	operator, err := settings.ParseWith(m.arguments, flags)
	if err != nil {
		return nil, err
	}
	types, err := scheme.New()
	if err != nil {
		return nil, err
	}
	reader := &memory{types: types, objects: map[schema.GroupKind][]client.Object{}}
	s := &Source{
		Reader: reader, Settings: operator, Cluster: explain.Cluster{Offline: true},
		assumed: m.missingNamespaces(), notes: slices.Clone(m.notes), now: now(),
	}
	for _, manifest := range m.Objects {
		if manifest.Object != nil {
			reader.add(manifest.Raw.GroupVersionKind(), manifest.Object)
		}
	}
	for name := range s.assumed {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		reader.add(corev1.SchemeGroupVersion.WithKind("Namespace"), namespace)
	}
	return s, nil
}

// missingNamespaces are the namespaces of objects that are not in the manifests.
func (m Manifests) missingNamespaces() sets.Set[string] {
	missing, given := sets.New[string](), sets.New[string]()
	for _, manifest := range m.Objects {
		if namespace, ok := manifest.Object.(*corev1.Namespace); ok {
			given.Insert(namespace.Name)
		} else {
			missing.Insert(manifest.Raw.GetNamespace())
		}
	}
	return missing.Difference(given).Delete("")
}
