// SPDX-License-Identifier: Apache-2.0

//go:build packaging

package attest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// generator is what `make bin/cyclonedx-gomod` builds.
const generator = Generator("../../../bin/cyclonedx-gomod")

// The generator itself is a program with many modules.
func TestSBOMsNameTheModulesOfTheProgram(t *testing.T) {
	program, err := os.ReadFile(string(generator))
	if err != nil {
		t.Fatalf("%v: run `make bin/cyclonedx-gomod`", err)
	}
	artifact := Artifact{
		Name: "kubectl-sidecar_termination-linux-amd64.tar.gz", Title: "kubectl-sidecar_termination",
		Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, SHA256: strings.Repeat("ab", 32),
		ProgramPath: "kubectl-sidecar_termination", Program: program,
	}
	documents, again := sboms(t, artifact), sboms(t, artifact)
	modules := goVersion(t)
	for name, content := range documents {
		if !bytes.Equal(content, again[name]) {
			t.Errorf("%s differs in the second run", name)
		}
		// The program's own module and the standard library are not lines of a dependency.
		if count, err := CheckSBOM(name, content, artifact, parameters.Version); err != nil || count != len(modules)+2 {
			t.Errorf("%s has %d modules, %v; want %d", name, count, err, len(modules)+2)
		}
		for _, module := range modules {
			if !bytes.Contains(content, []byte("pkg:golang/"+module[0]+"@"+module[1]+`"`)) {
				t.Errorf("%s does not name %s %s", name, module[0], module[1])
			}
		}
	}
	for name, test := range map[string]struct{ old, replacement, want string }{
		"other version":  {modules[0][1], modules[0][1] + "0", "does not name the module " + modules[0][0] + "@" + modules[0][1]},
		"another module": {`"` + modules[0][0] + `"`, `"example.test/other"`, "does not name the module " + modules[0][0]},
		"artifact":       {artifact.SHA256, strings.Repeat("cd", 32), "describes something with the digest cdcd"},
		"program":        {dist.Digest(program), strings.Repeat("cd", 32), "describes a program with the digest cdcd"},
		"own version":    {`"v1.2.3"`, `"v1.2.4"`, "names the program github.com/CycloneDX/cyclonedx-gomod@v1.2.4"},
	} {
		for file, content := range documents {
			changed := bytes.ReplaceAll(content, []byte(test.old), []byte(test.replacement))
			if _, err := CheckSBOM(file, changed, artifact, parameters.Version); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s in %s: error %v, want %q", name, file, err, test.want)
			}
		}
	}
	fewer := artifact
	fewer.Program = []byte("no program")
	if _, err := generator.sboms(t.Context(), fewer, parameters); err == nil || !strings.Contains(err.Error(), "describe "+artifact.Name) {
		t.Errorf("error for something that is no program is %v", err)
	}
}

func TestMissingGeneratorIsNamed(t *testing.T) {
	_, err := Generator("bin/missing").sboms(t.Context(), Artifact{Name: "archive", ProgramPath: "program"}, parameters)
	if err == nil || !strings.Contains(err.Error(), "build it with `make bin/missing`") {
		t.Errorf("error is %v", err)
	}
}

func sboms(t *testing.T, artifact Artifact) map[string][]byte {
	t.Helper()
	documents, err := generator.sboms(t.Context(), artifact, parameters)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// goVersion returns the names and versions of the modules that `go version -m` prints for the generator.
func goVersion(t *testing.T) [][2]string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "version", "-m", string(generator)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var modules [][2]string
	for line := range strings.Lines(string(output)) {
		if words := strings.Fields(line); len(words) >= 3 && words[0] == "dep" {
			modules = append(modules, [2]string{words[1], words[2]})
		}
	}
	if len(modules) == 0 {
		t.Fatalf("go version prints no modules:\n%s", output)
	}
	return modules
}
