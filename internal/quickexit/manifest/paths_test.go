// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit/manifest"
)

// readContainer reads a Pod with one container of the name c.
func readContainer(t *testing.T, fields string) []manifest.Container {
	t.Helper()
	pod := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, %s}]}}", fields)
	containers, err := manifest.Read("pod.yaml", strings.NewReader(pod))
	if err != nil {
		t.Fatal(err)
	}
	return containers
}

func TestPaths(t *testing.T) {
	existing := []string{"/quick-exit", "/bin/sh"}
	for name, test := range map[string]struct {
		fields  string
		want    []string
		warning string
	}{
		"no command":        {fields: "args: [/daprd]"},
		"known":             {fields: "command: [/bin/sh, -c, sleep 1d]"},
		"known in PATH":     {fields: "command: [sh, -c, sleep 1d]"},
		"absolute":          {fields: "command: [/opt/x]", want: []string{"/opt/x"}},
		"in PATH":           {fields: "command: [fluent-bit]", want: []string{"/usr/local/bin/fluent-bit"}, warning: `"fluent-bit" is not an absolute path; it is linked at /usr/local/bin/fluent-bit`},
		"in own PATH":       {fields: "command: [x], env: [{name: PATH, value: '/opt/bin:/bin'}]", want: []string{"/opt/bin/x"}, warning: "linked at /opt/bin/x"},
		"in visible PATH":   {fields: "command: [x], volumeMounts: [{name: v, mountPath: /usr/local/bin}]", want: []string{"/usr/local/sbin/x"}, warning: "linked at /usr/local/sbin/x"},
		"in working dir":    {fields: "command: [./run], workingDir: /app", want: []string{"/app/run"}, warning: `"./run" is not an absolute path; it is linked at /app/run`},
		"below a volume":    {fields: "command: [/tools/x], volumeMounts: [{name: v, mountPath: /tools}]", want: []string{"/tools/x"}, warning: "/tools/x is below the volume mounted at /tools"},
		"known, but hidden": {fields: "command: [/bin/sh], volumeMounts: [{name: v, mountPath: /bin}]", want: []string{"/bin/sh"}, warning: "/bin/sh is below the volume mounted at /bin"},
		"hooks": {
			fields: "lifecycle: {postStart: {exec: {command: [/started]}}, preStop: {exec: {command: [/stopping]}}}",
			want:   []string{"/started", "/stopping"},
		},
		"other hooks": {fields: "lifecycle: {postStart: {httpGet: {port: 1}}, preStop: {sleep: {seconds: 1}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := manifest.Paths(existing, readContainer(t, test.fields))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("paths are %v, %v; want %v", got, err, test.want)
			}
			all := strings.Join(warnings, "\n")
			if test.warning == "" && all != "" || !strings.Contains(all, test.warning) {
				t.Errorf("warnings are %q, want %q", warnings, test.warning)
			}
			if all != "" && !strings.HasPrefix(all, `pod.yaml: Pod p: spec.containers[0]: container "c": command: `) {
				t.Errorf("the warning does not say where: %q", all)
			}
		})
	}
}

func TestPathsErrors(t *testing.T) {
	for name, test := range map[string]struct{ fields, want string }{
		"variable from a reference": {"command: [$(X)], env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "variable X gets its value from another object"},
		"unknown variable":          {"command: [/a/$(X)]", "variable X is not in the container's env"},
		"no directory":              {"command: [x], env: [{name: PATH, value: bin}]", "it has no absolute directory"},
		"empty word":                {"command: ['']", "empty word"},
		"device":                    {"command: [/proc/self/exe]", "hidden in every container"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := manifest.Paths(nil, readContainer(t, test.fields))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), `pod.yaml: Pod p: spec.containers[0]: container "c": command: `) {
				t.Errorf("error is %v, want one with place and %q", err, test.want)
			}
		})
	}
}
