// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"fmt"
	"strings"
)

// spdxDocument is the part of an SPDX 2.3 document that an SBOM of this project has.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string          `json:"name"`
	ID               string          `json:"SPDXID"`
	Version          string          `json:"versionInfo"`
	DownloadLocation string          `json:"downloadLocation"`
	FilesAnalyzed    bool            `json:"filesAnalyzed"`
	Checksums        []spdxChecksum  `json:"checksums,omitempty"`
	Declared         string          `json:"licenseDeclared"`
	Concluded        string          `json:"licenseConcluded"`
	Copyright        string          `json:"copyrightText"`
	Purpose          string          `json:"primaryPackagePurpose"`
	References       []spdxReference `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	spdxVersion     = "SPDX-2.3"
	spdxDocumentID  = "SPDXRef-DOCUMENT"
	spdxNoAssertion = "NOASSERTION"
)

// spdxPurposes are the names in SPDX for types of components.
var spdxPurposes = map[string]string{"file": "ARCHIVE", "container": "CONTAINER", "application": "APPLICATION", "library": "LIBRARY"}

// toSPDX converts a CycloneDX document. The identity is part of the namespace, which has to be different for different
// documents.
func toSPDX(document bom, artifact Artifact, identity string) spdxDocument {
	converted := spdxDocument{
		Version: spdxVersion, DataLicense: "CC0-1.0", ID: spdxDocumentID, Name: artifact.Name,
		Namespace: fmt.Sprintf("%s/spdx/%s-%s", Repository, artifact.base(), identity),
		Creation:  spdxCreation{Created: document.Metadata.Timestamp, Creators: []string{"Organization: sidecar-termination"}},
	}
	if document.Metadata.Tools != nil {
		for _, tool := range document.Metadata.Tools.Components {
			converted.Creation.Creators = append(converted.Creation.Creators, "Tool: "+tool.Name+"-"+tool.Version)
		}
	}
	ids := map[string]string{}
	for i, component := range append([]component{document.Metadata.Component}, document.Components...) {
		id := fmt.Sprintf("SPDXRef-Package-%d", i)
		ids[component.Ref] = id
		converted.Packages = append(converted.Packages, toSPDXPackage(id, component))
	}
	converted.Relationships = []spdxRelationship{{spdxDocumentID, "DESCRIBES", ids[document.Metadata.Component.Ref]}}
	for _, dependency := range document.Dependencies {
		kind := "DEPENDS_ON"
		if dependency.Ref == document.Metadata.Component.Ref {
			kind = "CONTAINS"
		}
		for _, on := range dependency.DependsOn {
			converted.Relationships = append(converted.Relationships, spdxRelationship{ids[dependency.Ref], kind, ids[on]})
		}
	}
	return converted
}

func toSPDXPackage(id string, component component) spdxPackage {
	converted := spdxPackage{
		Name: component.Name, ID: id, Version: component.Version, Purpose: spdxPurposes[component.Type],
		DownloadLocation: spdxNoAssertion, Declared: spdxNoAssertion, Concluded: spdxNoAssertion, Copyright: spdxNoAssertion,
	}
	for _, hash := range component.Hashes {
		algorithm := strings.ReplaceAll(hash.Algorithm, "-", "")
		converted.Checksums = append(converted.Checksums, spdxChecksum{algorithm, hash.Content})
	}
	for _, choice := range component.Licenses {
		converted.Declared = choice.License.ID
	}
	if component.PURL != "" {
		converted.References = []spdxReference{{"PACKAGE-MANAGER", "purl", component.PURL}}
	}
	return converted
}
