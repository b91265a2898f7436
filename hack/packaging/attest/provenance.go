// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Names and types of the provenance.
const (
	ProvenanceFile = "provenance.json"
	StatementType  = "https://in-toto.io/Statement/v1"
	PredicateType  = "https://slsa.dev/provenance/v1"
	// BuildType is the address of the documentation of the parameters.
	BuildType = Repository + "/blob/main/docs/packages.md#provenance"
	// LocalBuilder is the builder of a release that somebody builds on their own machine.
	LocalBuilder = Repository + "/blob/main/docs/packages.md#local-builds"
	Repository   = "https://github.com/sidecar-termination/operator"
)

// Parameters are what a release is built from.
type Parameters struct {
	Version, Repository, Commit string
	// Builder is the address of who builds.
	Builder string
	// Go is the version of the toolchain.
	Go string
	// Date is the time in SBOMs, usually the date of the commit.
	Date time.Time
}

// Statement is an in-toto statement with SLSA provenance.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Subject  `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// Subject is a file or image with its digest.
type Subject struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
}

// Digest has the digests of a file, an image or a commit by algorithm.
type Digest map[string]string

// Provenance says how the subjects were built.
type Provenance struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// BuildDefinition has all inputs of the build.
type BuildDefinition struct {
	BuildType            string             `json:"buildType"`
	ExternalParameters   ExternalParameters `json:"externalParameters"`
	InternalParameters   InternalParameters `json:"internalParameters"`
	ResolvedDependencies []Dependency       `json:"resolvedDependencies"`
}

// ExternalParameters name the sources.
type ExternalParameters struct {
	Version    string `json:"version"`
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
}

// InternalParameters are set by the builder.
type InternalParameters struct {
	SourceDateEpoch int64 `json:"sourceDateEpoch"`
}

// Dependency is something that the build read.
type Dependency struct {
	URI    string `json:"uri"`
	Digest Digest `json:"digest,omitempty"`
	Name   string `json:"name,omitempty"`
}

// RunDetails names the builder.
type RunDetails struct {
	Builder Builder `json:"builder"`
}

// Builder is who built.
type Builder struct {
	ID string `json:"id"`
}

// IndexSubject returns the name of the subject for an image with all its platforms.
func IndexSubject(image string) string { return path.Join(ImagesDirectory, image) }

// Subject returns the name of the subject for the artifact.
func (a Artifact) Subject() string {
	if !a.Image {
		return a.Name
	}
	return IndexSubject(a.Title) + "@" + a.Platform.String()
}

// NewStatement returns the provenance of subjects, which are given as names with their SHA-256 digests. Equal arguments
// give equal statements.
func NewStatement(subjects map[string]string, parameters Parameters) Statement {
	statement := Statement{Type: StatementType, PredicateType: PredicateType, Predicate: Provenance{
		BuildDefinition: BuildDefinition{
			BuildType: BuildType,
			ExternalParameters: ExternalParameters{
				Version: parameters.Version, Repository: parameters.Repository, Commit: parameters.Commit,
			},
			InternalParameters: InternalParameters{SourceDateEpoch: parameters.Date.Unix()},
			// The images have no base image.
			ResolvedDependencies: []Dependency{
				{URI: "git+" + parameters.Repository + "@" + parameters.Commit, Digest: Digest{"gitCommit": parameters.Commit}},
				{URI: toolchainURI(parameters.Go), Name: toolchainName},
			},
		},
		RunDetails: RunDetails{Builder: Builder{ID: parameters.Builder}},
	}}
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		statement.Subject = append(statement.Subject, Subject{Name: name, Digest: Digest{"sha256": subjects[name]}})
	}
	return statement
}

const (
	toolchainName   = "go"
	toolchainPrefix = "pkg:generic/go@"
)

func toolchainURI(version string) string { return toolchainPrefix + version }

// ParseStatement reads a statement that this version of the build could have written. Unknown fields are an error.
func ParseStatement(content []byte) (Statement, error) {
	var statement Statement
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&statement); err != nil {
		return statement, fmt.Errorf("parse %s: %w", ProvenanceFile, err)
	}
	for _, field := range []struct{ name, got, want string }{
		{"_type", statement.Type, StatementType},
		{"predicateType", statement.PredicateType, PredicateType},
		{"buildType", statement.Predicate.BuildDefinition.BuildType, BuildType},
	} {
		if field.got != field.want {
			return statement, fmt.Errorf("parse %s: %s is %q, want %q", ProvenanceFile, field.name, field.got, field.want)
		}
	}
	return statement, nil
}

// Parameters returns what the statement was made with.
func (s Statement) Parameters() Parameters {
	definition := s.Predicate.BuildDefinition
	parameters := Parameters{
		Version:    definition.ExternalParameters.Version,
		Repository: definition.ExternalParameters.Repository,
		Commit:     definition.ExternalParameters.Commit,
		Builder:    s.Predicate.RunDetails.Builder.ID,
		Date:       time.Unix(definition.InternalParameters.SourceDateEpoch, 0).UTC(),
	}
	for _, dependency := range definition.ResolvedDependencies {
		if version, ok := strings.CutPrefix(dependency.URI, toolchainPrefix); ok {
			parameters.Go = version
		}
	}
	return parameters
}
