// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// suite is a test file with its manifests.
type suite struct {
	definition
	cases     []testCase
	manifests source.Manifests
	program   source.Program
	// sources has a source for each set of operator flags, and workloads has the workloads of each source.
	sources   map[string]*source.Source
	workloads map[*source.Source][]workload
}

// load reads a test file and its manifests.
func load(ctx context.Context, program source.Program, path string) (*suite, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	s := &suite{program: program, sources: map[string]*source.Source{}, workloads: map[*source.Source][]workload{}}
	if s.definition, s.cases, err = parse(data); err != nil {
		return nil, err
	}
	if err := s.checkNames(); err != nil {
		return nil, err
	}
	texts, err := s.texts(path)
	if err != nil {
		return nil, err
	}
	if s.manifests, err = source.ReadTexts(ctx, texts, cmp.Or(s.Namespace, "default")); err != nil {
		return nil, err
	}
	return s, s.checkPolicies()
}

// parse decodes a test file and its cases. It accepts no unknown or repeated fields.
func parse(data []byte) (definition, []testCase, error) {
	var d definition
	if err := checkDocuments(data); err != nil {
		return d, nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return d, nil, err
	}
	var header output.Header
	// Errors about other fields follow.
	_ = json.Unmarshal(asJSON, &header)
	if want := output.NewHeader(kind); header != want {
		return d, nil, fmt.Errorf("apiVersion is %q and kind is %q; a test file has apiVersion: %s and kind: %s", header.APIVersion, header.Kind, want.APIVersion, want.Kind)
	}
	if err := decodeStrict(asJSON, &d, ""); err != nil {
		return d, nil, err
	}
	cases := make([]testCase, len(d.Cases))
	var all []error
	for i, raw := range d.Cases {
		all = append(all, decodeStrict(raw, &cases[i], fmt.Sprintf("cases[%d].", i)))
	}
	return d, cases, errors.Join(all...)
}

// decodeStrict decodes JSON. Errors start with the prefix and the field.
func decodeStrict(data []byte, into any, prefix string) error {
	problems, err := kjson.UnmarshalStrict(data, into)
	if wrong := (&json.UnmarshalTypeError{}); errors.As(err, &wrong) {
		return fmt.Errorf("%s: is of type %s; it must be %s", strings.TrimSuffix(prefix+wrong.Field, "."), wrong.Value, typeName(wrong.Type))
	}
	if err != nil {
		return err
	}
	var all []error
	for _, err := range problems {
		var unknown kjson.FieldError
		if !errors.As(err, &unknown) {
			return err
		}
		all = append(all, fmt.Errorf("%s%s: unknown field; docs/guides/testing-policies.md lists the fields", prefix, unknown.FieldPath()))
	}
	return errors.Join(all...)
}

// typeName names the JSON type of values of a Go type.
func typeName(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a string"
}

// checkDocuments returns an error unless there is one document: the decoder would ignore the others.
func checkDocuments(data []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	documents := 0
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if !isBlank(document) {
			documents++
		}
	}
	if documents != 1 {
		return fmt.Errorf("it has %d YAML documents; a test file has one", documents)
	}
	return nil
}

// isBlank reports whether a document has only comments and separators.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// checkNames checks that there are cases, and that their names are unique.
func (s *suite) checkNames() error {
	if len(s.cases) == 0 {
		return errors.New("cases: there is no case")
	}
	seen := map[string]bool{}
	var all []error
	for i, c := range s.cases {
		switch {
		case c.Name == "":
			all = append(all, fmt.Errorf("cases[%d].name: set a name", i))
		case seen[c.Name]:
			all = append(all, fmt.Errorf("cases[%d].name: another case is called %q", i, c.Name))
		}
		seen[c.Name] = true
	}
	return errors.Join(all...)
}

// texts reads the manifests. They are relative to the path, a test file.
func (s *suite) texts(path string) ([]source.Text, error) {
	if len(s.Manifests) > maxManifests {
		return nil, fmt.Errorf("manifests: there are more than %d files", maxManifests)
	}
	var texts []source.Text
	var all []error
	for i, name := range s.Manifests {
		file := filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
		data, err := readFile(file)
		if err != nil {
			all = append(all, fmt.Errorf("manifests[%d]: read %s: %w", i, file, err))
		}
		texts = append(texts, source.Text{Name: file, Data: data})
	}
	for i, object := range s.Objects {
		texts = append(texts, source.Text{Name: fmt.Sprintf("%s objects[%d]", path, i), Data: object})
	}
	return texts, errors.Join(all...)
}

// checkPolicies returns an error for policies that would not be what their author wrote: those that the API server would reject,
// and those that are given twice.
func (s *suite) checkPolicies() error {
	var all []error
	for _, rejected := range s.manifests.Rejected {
		all = append(all, fmt.Errorf("%s: the API server would reject %s: %s", rejected.File, rejected.Policy, strings.Join(rejected.Errors, "; ")))
	}
	seen := map[resolve.PolicyRef]bool{}
	for _, manifest := range s.manifests.Objects {
		policy, ok := source.PolicyOf(manifest.Object)
		switch {
		case !ok:
			continue
		case policy.Invalid != nil:
			all = append(all, fmt.Errorf("%s: %s: %w", manifest.File, policy.Ref, policy.Invalid))
		case seen[policy.Ref]:
			all = append(all, fmt.Errorf("%s: %s is in the manifests twice", manifest.File, policy.Ref))
		}
		seen[policy.Ref] = true
	}
	return errors.Join(all...)
}
