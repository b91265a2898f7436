// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func nothing(string) bool { return false }

func TestTrim(t *testing.T) {
	full := func(words ...string) corev1.Container {
		container := mounted("/data", mounted("/usr/bin", inDirectory("/app", command(words...))))
		return with(container, "SECRET", "hunter2", "BASE", "/opt", "DIR", "$(BASE)/bin", "PATH", "$(DIR):/bin", "DIR", "/late")
	}
	for name, test := range map[string]struct {
		container, want corev1.Container
	}{
		"no command":             {full(), corev1.Container{}},
		"a path":                 {full("/bin/sh", "-c", "a long script"), command("/bin/sh")},
		"a path below a volume":  {full("/usr/bin/sh", "-c"), corev1.Container{Command: []string{"/usr/bin/sh"}, VolumeMounts: []corev1.VolumeMount{{MountPath: "/usr/bin"}}}},
		"a path with a variable": {full("/x/$(DIR)/y", "-c"), mounted("/data", mounted("/usr/bin", with(command("/x/$(DIR)/y"), "DIR", "/late")))},
		"a relative path":        {full("./run", "now"), inDirectory("/app", command("./run"))},
		"a name":                 {full("run", "now"), mounted("/data", mounted("/usr/bin", with(command("run"), "BASE", "/opt", "DIR", "$(BASE)/bin", "PATH", "$(DIR):/bin")))},
		"a name in a plain PATH": {with(mounted("/data", mounted("/bin", command("run"))), "PATH", "/usr/bin:/bin"), mounted("/bin", with(command("run"), "PATH", "/usr/bin:/bin"))},
		"a source of a value": {
			withSource(command("$(X)/run"), "X", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}),
			withSource(command("$(X)/run"), "X", &corev1.EnvVarSource{}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.want.VolumeMounts {
				test.want.VolumeMounts[i].Name = ""
			}
			if diff := cmp.Diff(test.want, quickexit.Trim(&test.container, nothing)); diff != "" {
				t.Errorf("trimmed container (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrimKeepsLastVariable(t *testing.T) {
	container := with(corev1.Container{}, "KEPT", "1", "OTHER", "2", "KEPT", "3", "KEPT", "4")
	want := with(corev1.Container{}, "KEPT", "4")
	got := quickexit.Trim(&container, func(name string) bool { return name == "KEPT" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trimmed container (-want +got):\n%s", diff)
	}
}

// FuzzTrim makes a container from bytes. Every coverage gives the same result for the trimmed container as for the full one.
// Trimming again changes nothing, and Trim does not modify its argument.
func FuzzTrim(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0, 0, 2, 1, 1, 0, 1})
	f.Add([]byte{5, 6, 4, 1, 2, 3, 0, 4, 2, 5, 0, 1, 3, 3, 1, 2, 3, 4})
	f.Add([]byte("a container with a command, variables that refer to others and some volumes"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkTrim(t, fuzzedContainer(data))
	})
}

// FuzzTrimHostile builds containers with the parts that a pod's author can make large: chains of variables, long PATHs, many
// mounts and long words. Their sizes are just below and above the limits.
func FuzzTrimHostile(f *testing.F) {
	f.Add("$(V3)", uint8(4), uint8(2), "x", uint16(10), uint16(3), uint16(10), uint16(0))
	f.Add("sh", uint8(30), uint8(2), "", uint16(64), uint16(4), uint16(100), uint16(0))
	f.Add("sh", uint8(0), uint8(0), "$(", uint16(65), uint16(200), uint16(64), uint16(0))
	f.Add("./$(V63)", uint8(70), uint8(1), "$(PATH)", uint16(1), uint16(5000), uint16(65), uint16(4096))
	f.Fuzz(func(t *testing.T, word string, variables, references uint8, value string, directories, length, mounts, padding uint16) {
		word += strings.Repeat("w", int(padding%5000))
		container := corev1.Container{Command: []string{word}, WorkingDir: "/" + strings.Repeat("d", int(padding%5000))}
		for i := range int(variables) % 100 {
			text := value
			if i > 0 {
				text += strings.Repeat(fmt.Sprintf("$(V%d)", i-1), int(references)%8)
			}
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: text})
		}
		if directories > 0 {
			directory := "/" + strings.Repeat("p", int(length)%5000)
			path := strings.Repeat(directory+":", int(directories)%80) + value
			container.Env = append(container.Env, corev1.EnvVar{Name: "PATH", Value: path})
		}
		for i := range int(mounts) % 200 {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{MountPath: fmt.Sprintf("/m%d", i)})
		}
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{MountPath: value})
		checkTrim(t, container)
	})
}

// checkTrim fails unless every coverage gives the same result for the trimmed container as for the full one. Trimming again must
// change nothing, and Trim must not modify its argument.
func checkTrim(t *testing.T, container corev1.Container) {
	t.Helper()
	before := container.DeepCopy()
	trimmed := quickexit.Trim(&container, nothing)
	for _, entries := range [][]string{nil, {"*"}, {"default"}, {"/a"}, {"/a/b", "/b", "/a/a"}, {"/quick-exit"}, {"x"}} {
		coverage := quickexit.CoverageOf(entries...)
		full, got := quickexit.CoversContainer(coverage, &container), quickexit.CoversContainer(coverage, &trimmed)
		if fmt.Sprint(full) != fmt.Sprint(got) {
			t.Errorf("coverage %q: %v for the full container, %v for the trimmed one\nfull %+v\ntrimmed %+v", coverage, full, got, container, trimmed)
		}
	}
	if diff := cmp.Diff(trimmed, quickexit.Trim(&trimmed, nothing)); diff != "" {
		t.Errorf("trimming twice is not trimming once:\n%s", diff)
	}
	if diff := cmp.Diff(before, &container); diff != "" {
		t.Errorf("the container was changed:\n%s", diff)
	}
}

func fuzzedContainer(data []byte) corev1.Container {
	next := func(bound int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % bound
	}
	// Texts are built from parts that have a meaning in a command or a variable.
	text := func(parts ...string) string {
		joined := ""
		for range next(4) {
			joined += parts[next(len(parts))]
		}
		return joined
	}
	names := []string{"A", "B", "C", "PATH", ""}
	parts := []string{"/", "a", "b", "/a", "/b", "$(A)", "$(B)", "$(C)", "$(PATH)", "$", "$$", "$(", ")", ".", "..", ":", "$()", "quick-exit"}
	container := corev1.Container{WorkingDir: text(parts...)}
	for range next(3) {
		container.Command = append(container.Command, text(parts...))
	}
	for range next(7) {
		variable := corev1.EnvVar{Name: names[next(len(names))], Value: text(parts...)}
		if next(6) == 1 {
			variable.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		}
		container.Env = append(container.Env, variable)
	}
	for range next(4) {
		mount := slices.Concat([]string{"/quick-exit", "/data"}, parts)[next(len(parts)+2)]
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: mount, SubPath: "s"})
	}
	return container
}
