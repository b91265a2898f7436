// SPDX-License-Identifier: Apache-2.0

package crdify_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// policies is the file that the tests modify.
const policies = "sidecartermination.dev_sidecarterminationpolicies.yaml"

func current(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := readDirectory(repository, definitions)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// changed returns the definitions with a change of the policy's spec.
func changed(t *testing.T, change func(*apiextensionsv1.CustomResourceDefinition, map[string]apiextensionsv1.JSONSchemaProps)) map[string][]byte {
	t.Helper()
	files := maps.Clone(current(t))
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(files[policies], definition); err != nil {
		t.Fatal(err)
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	change(definition, spec.Properties)
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	content, err := yaml.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	files[policies] = content
	return files
}

type schemas = map[string]apiextensionsv1.JSONSchemaProps

func TestBreakingChangesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition, schemas)
		want   string
	}{
		"a field is gone": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) { delete(spec, "image") }, "spec.image"},
		"a field has another type": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "image", func(s *schema) { s.Type = "integer" })
		}, "type"},
		"an enum lost a value": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "mode", func(s *schema) { s.Enum = s.Enum[1:] })
		}, "enum"},
		"a text must be shorter": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "image", func(s *schema) { s.MaxLength = number(3) })
		}, "maxLength"},
		"a list must be shorter": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "sidecars", func(s *schema) { s.MaxItems = number(1) })
		}, "maxItems"},
		"a rule was added": {func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "image", func(s *schema) {
				s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: "false"})
			})
		}, "validation"},
		"the scope is another one": {func(d *apiextensionsv1.CustomResourceDefinition, _ schemas) {
			d.Spec.Scope = apiextensionsv1.ClusterScoped
		}, "scope"},
		"the version is gone": {func(d *apiextensionsv1.CustomResourceDefinition, _ schemas) {
			d.Spec.Versions[0].Name = "v1beta1"
		}, "v1alpha1"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := compare(current(t), changed(t, test.change))
			if err != nil || !strings.Contains(strings.ToLower(report), strings.ToLower(test.want)) {
				t.Errorf("report is %q, %v; want one with %q", report, err, test.want)
			}
		})
	}
}

func TestHarmlessChangesPass(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition, schemas){
		"nothing": func(*apiextensionsv1.CustomResourceDefinition, schemas) {},
		"an optional field": func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			spec["further"] = schema{Type: "string"}
		},
		"a description": func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "image", func(s *schema) { s.Description = "x" })
		},
		"a longer text": func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) {
			edit(spec, "image", func(s *schema) { s.MaxLength = number(9999) })
		},
		"one more value": func(_ *apiextensionsv1.CustomResourceDefinition, spec schemas) { edit(spec, "mode", addValue) },
		"one more short name": func(d *apiextensionsv1.CustomResourceDefinition, _ schemas) {
			d.Spec.Names.ShortNames = append(d.Spec.Names.ShortNames, "x")
		},
		"another printed column": func(d *apiextensionsv1.CustomResourceDefinition, _ schemas) {
			d.Spec.Versions[0].AdditionalPrinterColumns = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if report, err := compare(current(t), changed(t, change)); err != nil || report != "" {
				t.Errorf("report is %q, %v; want none", report, err)
			}
		})
	}
}

func TestDefinitionsComeAndGo(t *testing.T) {
	all := current(t)
	fewer := maps.Clone(all)
	delete(fewer, policies)
	if report, err := compare(all, fewer); err != nil || !strings.Contains(report, "sidecarterminationpolicies.sidecartermination.dev: it is gone") {
		t.Errorf("one is gone: report is %q, %v", report, err)
	}
	if report, err := compare(fewer, all); err != nil || report != "" {
		t.Errorf("one is new: report is %q, %v", report, err)
	}
}

func TestBaselines(t *testing.T) {
	repository := t.TempDir()
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", arguments, err, output)
		}
	}
	write := func(directory string, content string) {
		t.Helper()
		directory = filepath.Join(repository, directory)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, "a.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(base, name, content string) {
		t.Helper()
		found, err := findBaseline(repository, base)
		if err != nil {
			t.Fatal(err)
		}
		if found == nil {
			if name != "" {
				t.Errorf("no baseline, want %s", name)
			}
			return
		}
		if found.name != name || string(found.definitions["a.yaml"]) != content {
			t.Errorf("baseline is %s with %q, want %s with %q", found.name, found.definitions["a.yaml"], name, content)
		}
	}
	run("init", "--quiet")
	for _, content := range []string{"first", "second", "third"} {
		write(definitions, content)
		run("add", ".")
		run("commit", "--quiet", "--message", content)
	}
	expect("", "", "")
	expect("HEAD~", "HEAD~", "second")
	run("tag", "v0.9.0", "HEAD~2")
	run("tag", "v0.10.0", "HEAD~")
	run("tag", "other")
	expect("", "v0.10.0", "second")
	write(released, "released")
	expect("", released, "released")
	expect("v0.9.0", "v0.9.0", "first")
	for _, bad := range []string{"no-such", "--all"} {
		if found, err := findBaseline(repository, bad); err == nil {
			t.Errorf("baseline of %s is %v", bad, found)
		}
	}
}

type schema = apiextensionsv1.JSONSchemaProps

func edit(spec schemas, field string, change func(*schema)) {
	property := spec[field]
	change(&property)
	spec[field] = property
}

func addValue(s *schema) {
	s.Enum = append(slices.Clone(s.Enum), apiextensionsv1.JSON{Raw: []byte(`"Further"`)})
}

func number(value int64) *int64 { return &value }
