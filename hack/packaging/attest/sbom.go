// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/images"
)

// bom is the part of a CycloneDX document that an SBOM of this project has.
type bom struct {
	Schema       string         `json:"$schema"`
	Format       string         `json:"bomFormat"`
	SpecVersion  string         `json:"specVersion"`
	SerialNumber string         `json:"serialNumber,omitempty"`
	Version      int            `json:"version"`
	Metadata     bomMetadata    `json:"metadata"`
	Components   []component    `json:"components"`
	Dependencies []dependencies `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp  string     `json:"timestamp"`
	Tools      *bomTools  `json:"tools,omitempty"`
	Component  component  `json:"component"`
	Properties []property `json:"properties,omitempty"`
}

type bomTools struct {
	Components []component `json:"components"`
}

type component struct {
	Ref                string              `json:"bom-ref,omitempty"`
	Type               string              `json:"type"`
	Name               string              `json:"name"`
	Version            string              `json:"version,omitempty"`
	Scope              string              `json:"scope,omitempty"`
	Hashes             []hash              `json:"hashes,omitempty"`
	Licenses           []licenseChoice     `json:"licenses,omitempty"`
	PURL               string              `json:"purl,omitempty"`
	ExternalReferences []externalReference `json:"externalReferences,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licenseChoice struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type externalReference struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// generated is what is used of the generator's output.
type generated struct {
	Metadata struct {
		Component  component  `json:"component"`
		Properties []property `json:"properties"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type dependencies struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

const (
	license         = "Apache-2.0"
	sha256Algorithm = "SHA-256"
	generatorName   = "cyclonedx-gomod"
)

// Generator is the path of the program cyclonedx-gomod.
type Generator string

// sboms returns the two SBOMs of the artifact by file name. They describe the modules that the program of the artifact
// was built from.
func (g Generator) sboms(ctx context.Context, artifact Artifact, parameters Parameters) (map[string][]byte, error) {
	document, err := g.describe(ctx, artifact, parameters)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", artifact.Name, err)
	}
	unnumbered, err := encode(document)
	if err != nil {
		return nil, err
	}
	// Equal documents have equal numbers.
	identity := dist.Digest(unnumbered)
	document.SerialNumber = serialNumber(identity)
	cycloneDX, err := encode(document)
	if err != nil {
		return nil, err
	}
	converted, err := encode(toSPDX(document, artifact, identity))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{artifact.CycloneDXFile(): cycloneDX, artifact.SPDXFile(): converted}, nil
}

func (g Generator) describe(ctx context.Context, artifact Artifact, parameters Parameters) (bom, error) {
	program, modules, properties, tools, err := g.program(ctx, artifact, parameters)
	if err != nil {
		return bom{}, err
	}
	program.Hashes = []hash{{sha256Algorithm, dist.Digest(artifact.Program)}}
	program.Licenses = ownLicense()
	whole := component{
		Ref: artifact.Subject(), Type: "file", Name: artifact.Name, Version: parameters.Version,
		Hashes: []hash{{sha256Algorithm, artifact.SHA256}}, Licenses: ownLicense(),
	}
	if artifact.Image {
		whole.Type, whole.Name = "container", artifact.Title
		whole.PURL = fmt.Sprintf("pkg:oci/%s@sha256%%3A%s?arch=%s&os=%s",
			artifact.Title, artifact.SHA256, artifact.Platform.Architecture, artifact.Platform.OS)
	}
	needs := dependencies{Ref: program.Ref}
	graph := []dependencies{{Ref: whole.Ref, DependsOn: []string{program.Ref}}}
	leaves := []dependencies{}
	for _, module := range modules {
		needs.DependsOn = append(needs.DependsOn, module.Ref)
		leaves = append(leaves, dependencies{Ref: module.Ref})
	}
	return bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: bomMetadata{
			Timestamp: parameters.Date.UTC().Format(time.RFC3339), Tools: tools, Component: whole, Properties: properties,
		},
		Components:   append([]component{program}, modules...),
		Dependencies: append(append(graph, needs), leaves...),
	}, nil
}

// program returns the program of the artifact and its modules. The program of the quick-exit image is machine code of
// this repository, so it has no modules.
func (g Generator) program(ctx context.Context, artifact Artifact, parameters Parameters) (
	program component, modules []component, properties []property, tools *bomTools, err error,
) {
	if artifact.Image && artifact.Title == images.QuickExit {
		program = component{Ref: artifact.ProgramPath, Type: "application", Name: artifact.ProgramPath, Version: parameters.Version}
		return program, nil, nil, nil, nil
	}
	generated, err := g.run(ctx, artifact, parameters.Version)
	if err != nil {
		return program, nil, nil, nil, err
	}
	version, err := g.version()
	if err != nil {
		return program, nil, nil, nil, err
	}
	tool := component{Type: "application", Name: generatorName, Version: version, PURL: "pkg:golang/github.com/CycloneDX/" + generatorName + "@" + version}
	return generated.Metadata.Component, generated.Components, generated.Metadata.Properties, &bomTools{Components: []component{tool}}, nil
}

// run returns what the generator reads from the program of the artifact.
func (g Generator) run(ctx context.Context, artifact Artifact, version string) (output generated, err error) {
	directory, err := os.MkdirTemp("", "sbom-")
	if err != nil {
		return output, fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	file := filepath.Join(directory, path.Base(artifact.ProgramPath))
	if err := os.WriteFile(file, artifact.Program, 0o755); err != nil {
		return output, fmt.Errorf("write the program: %w", err)
	}
	var stderr bytes.Buffer
	// Without -short-purls the identifiers have the platform of the machine that builds.
	command := exec.CommandContext(ctx, string(g), "bin", "-json", "-std", "-short-purls", "-noserial", "-notimestamp", "-version", version, file)
	command.Stderr = &stderr
	encoded, err := command.Output()
	if errors.Is(err, os.ErrNotExist) {
		return output, fmt.Errorf("run %s: %w: build it with `make %s`", g, err, g)
	}
	if err != nil {
		return output, fmt.Errorf("run %s: %w\n%s", g, err, stderr.Bytes())
	}
	if err := json.Unmarshal(encoded, &output); err != nil {
		return output, fmt.Errorf("parse the output of %s: %w", g, err)
	}
	return output, nil
}

func (g Generator) version() (string, error) {
	information, err := buildinfo.ReadFile(string(g))
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", g, err)
	}
	return information.Main.Version, nil
}

// BuildInfo returns the modules that the program of the artifact says it was built from, as `go version -m` does. It
// returns nil for the quick-exit image.
func (a Artifact) BuildInfo() (*debug.BuildInfo, error) {
	if a.Image && a.Title == images.QuickExit {
		return nil, nil
	}
	information, err := buildinfo.Read(bytes.NewReader(a.Program))
	if err != nil {
		return nil, fmt.Errorf("read the modules of %s in %s: %w", a.ProgramPath, a.Name, err)
	}
	return information, nil
}

func ownLicense() []licenseChoice {
	choice := licenseChoice{}
	choice.License.ID = license
	return []licenseChoice{choice}
}

// serialNumber returns a UUID of version 8, whose meaning the vendor defines.
func serialNumber(identity string) string {
	id, _ := hex.DecodeString(identity[:32])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func encode(document any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encode a document: %w", err)
	}
	return buffer.Bytes(), nil
}
