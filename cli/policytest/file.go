// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Bounds of the input. A file is a test file or a manifest.
const (
	maxFileBytes = 1 << 20
	maxManifests = 100
	maxCases     = 1000
)

// kind is the kind of a test file. It has the apiVersion of the JSON output of other commands.
const kind = "PolicyTest"

// testFile is a test file.
type testFile struct {
	output.Header
	// Manifests are files with policies, namespaces and workloads, relative to the test file. Objects are the same inline.
	Manifests []string          `json:"manifests"`
	Objects   []json.RawMessage `json:"objects"`
	// Namespace is the namespace of objects without one.
	Namespace string `json:"namespace"`
	// Cluster applies to every case.
	Cluster facts `json:"cluster"`
	// Cases are of type testCase.
	Cases []json.RawMessage `json:"cases"`

	cases     []testCase
	manifests source.Manifests
	workloads []candidate
}

// facts describe the cluster and the operator in it. An unset field of a case has the value of the file.
type facts struct {
	OpenKruise    *bool    `json:"openKruise"`
	EnforceDryRun *bool    `json:"enforceDryRun"`
	OperatorFlags []string `json:"operatorFlags"`
}

// testCase is a pod on a kind of node, and what to expect of the operator.
type testCase struct {
	Name string `json:"name"`
	// Workload is KIND/NAME or KIND/NAMESPACE/NAME of a manifest, with the path of a pod template if it has several. It may be empty if
	// there is only one.
	Workload string `json:"workload"`
	Cluster  facts  `json:"cluster"`
	// Node is the kind of the pod's node. Default: Real.
	Node   string `json:"node"`
	Expect struct {
		// Findings are reasons of findings that explain must report. It may report others.
		Findings []string `json:"findings"`
		// Containers have expected values by field.
		Containers map[string]map[string]any `json:"containers"`
	} `json:"expect"`
}

// load reads a test file and its manifests.
func load(ctx context.Context, path string) (*testFile, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	f := &testFile{}
	if err := f.parse(data); err != nil {
		return nil, err
	}
	builder := source.LocalBuilder()
	for i, name := range f.Manifests {
		file := filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
		if data, err = readFile(file); err != nil {
			return nil, fmt.Errorf("manifests[%d]: read %s: %w", i, file, err)
		}
		builder = builder.Stream(bytes.NewReader(data), file)
	}
	for i, object := range f.Objects {
		builder = builder.Stream(bytes.NewReader(object), fmt.Sprintf("%s objects[%d]", path, i))
	}
	if len(f.Manifests)+len(f.Objects) > 0 {
		if f.manifests, err = source.Decode(ctx, builder, cmp.Or(f.Namespace, "default")); err != nil {
			return nil, err
		}
	}
	f.findWorkloads()
	return f, f.checkPolicies()
}

// readFile reads a regular file of bounded size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("it must be a regular file of at most %d KiB", maxFileBytes>>10)
	}
	return os.ReadFile(path)
}

// parse decodes a test file and its cases. It accepts no unknown or repeated fields.
func (f *testFile) parse(data []byte) error {
	if bytes.Contains(data, []byte("\n---")) {
		return errors.New("it has several YAML documents; a test file has one, without a line ---")
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	var header output.Header
	// Errors about other fields follow.
	_ = json.Unmarshal(asJSON, &header)
	if want := output.NewHeader(kind); header != want {
		return fmt.Errorf("apiVersion is %q and kind is %q; a test file has apiVersion: %s and kind: %s", header.APIVersion, header.Kind, want.APIVersion, want.Kind)
	}
	if err := decode(asJSON, f, ""); err != nil {
		return err
	}
	if len(f.Cases) == 0 || len(f.Cases) > maxCases || len(f.Manifests) > maxManifests {
		return fmt.Errorf("it has %d cases and %d manifests; it must have 1 to %d cases and at most %d manifests", len(f.Cases), len(f.Manifests), maxCases, maxManifests)
	}
	f.cases = make([]testCase, len(f.Cases))
	var all []error
	for i, raw := range f.Cases {
		all = append(all, decode(raw, &f.cases[i], fmt.Sprintf("cases[%d]: ", i)))
		if f.cases[i].Name == "" {
			all = append(all, fmt.Errorf("cases[%d].name: set a name", i))
		}
	}
	return errors.Join(all...)
}

// decode decodes JSON. Errors start with the prefix and name the field.
func decode(data []byte, into any, prefix string) error {
	problems, err := kjson.UnmarshalStrict(data, into)
	var all []error
	for _, problem := range append(problems, err) {
		if problem != nil {
			all = append(all, fmt.Errorf("%s%w", prefix, problem))
		}
	}
	return errors.Join(all...)
}

// checkPolicies returns an error for policies that would not be what their author wrote: those that the API server would reject,
// and those that are given twice.
func (f *testFile) checkPolicies() error {
	var all []error
	for _, rejected := range f.manifests.Rejected {
		all = append(all, fmt.Errorf("%s: the API server would reject %s: %s", rejected.Place.File, rejected.Policy(), strings.Join(rejected.Mistakes, "; ")))
	}
	seen := map[resolve.PolicyRef]bool{}
	for _, manifest := range f.manifests.Objects {
		policy, ok := source.PolicyOf(manifest.Object)
		if ok && policy.Invalid != nil {
			all = append(all, fmt.Errorf("%s: %s: %w", manifest.Place.File, policy.Ref, policy.Invalid))
		} else if ok && seen[policy.Ref] {
			all = append(all, fmt.Errorf("%s: %s is in the manifests twice", manifest.Place.File, policy.Ref))
		}
		seen[policy.Ref] = true
	}
	return errors.Join(all...)
}
