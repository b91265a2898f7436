// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// described is what an SBOM says, in either format.
type described struct {
	// artifact and program are the digests of these.
	artifact, program string
	// modules are the names and versions of the modules, without the program's own.
	modules map[string]bool
	// main is the name and version of the program's own module.
	main string
}

// CheckSBOM checks that an SBOM describes the artifact and names exactly the modules of its program. It returns how many
// modules that are, including the program's own.
func CheckSBOM(file string, content []byte, artifact Artifact, version string) (int, error) {
	parse := parseCycloneDX
	if strings.HasSuffix(file, spdxSuffix) {
		parse = parseSPDX
	}
	got, err := parse(content)
	if err != nil {
		return 0, fmt.Errorf("parse the SBOM: %w", err)
	}
	if got.artifact != artifact.SHA256 {
		return 0, fmt.Errorf("it describes something with the digest %s, but %s has %s", got.artifact, artifact.Name, artifact.SHA256)
	}
	if program := dist.Digest(artifact.Program); got.program != program {
		return 0, fmt.Errorf("it describes a program with the digest %s, but %s has %s", got.program, artifact.ProgramPath, program)
	}
	want, main, err := modules(artifact, version)
	if err != nil {
		return 0, err
	}
	if got.main != main {
		return 0, fmt.Errorf("it names the program %s, want %s", got.main, main)
	}
	for _, module := range slices.Sorted(maps.Keys(want)) {
		if !got.modules[module] {
			return 0, fmt.Errorf("it does not name the module %s of the program", module)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(got.modules)) {
		if !want[module] {
			return 0, fmt.Errorf("it names the module %s, which the program does not have", module)
		}
	}
	return len(want) + 1, nil
}

// modules returns the names and versions of the modules of the program and of its own module, and the standard library.
func modules(artifact Artifact, version string) (needed map[string]bool, main string, err error) {
	information, err := artifact.BuildInfo()
	if err != nil {
		return nil, "", err
	}
	needed = map[string]bool{}
	if information == nil {
		return needed, artifact.ProgramPath + "@" + version, nil
	}
	needed["std@"+information.GoVersion] = true
	for _, module := range information.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		needed[module.Path+"@"+module.Version] = true
	}
	return needed, information.Main.Path + "@" + version, nil
}

func parseCycloneDX(content []byte) (described, error) {
	var document bom
	if err := json.Unmarshal(content, &document); err != nil {
		return described{}, err
	}
	if document.Format != "CycloneDX" || len(document.Components) == 0 {
		return described{}, errors.New("it is no CycloneDX document with components")
	}
	found := described{artifact: hashOf(document.Metadata.Component), modules: map[string]bool{}}
	for _, component := range document.Components {
		name := component.Name + "@" + component.Version
		if component.Type == "application" {
			found.main, found.program = name, hashOf(component)
			continue
		}
		found.modules[name] = true
	}
	return found, nil
}

func hashOf(component component) string {
	for _, hash := range component.Hashes {
		if hash.Algorithm == sha256Algorithm {
			return hash.Content
		}
	}
	return ""
}

func parseSPDX(content []byte) (described, error) {
	var document spdxDocument
	if err := json.Unmarshal(content, &document); err != nil {
		return described{}, err
	}
	if document.Version != spdxVersion || len(document.Packages) == 0 {
		return described{}, fmt.Errorf("it is no document of %s with packages", spdxVersion)
	}
	found := described{modules: map[string]bool{}}
	for _, item := range document.Packages {
		checksum := ""
		for _, sum := range item.Checksums {
			checksum = sum.Value
		}
		name := item.Name + "@" + item.Version
		switch item.Purpose {
		case "LIBRARY":
			found.modules[name] = true
		case "APPLICATION":
			found.main, found.program = name, checksum
		default:
			found.artifact = checksum
		}
	}
	return found, nil
}
