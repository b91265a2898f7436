// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/internal/terminal"
)

// The values of --format.
const (
	formatText = "text"
	formatJSON = "json"
)

// result describes the image and where it was written. Programs read its JSON form, so fields may be added, but not
// changed or removed.
type result struct {
	// Digest is the digest of the image index.
	Digest    string           `json:"digest"`
	Platforms []platformResult `json:"platforms"`
	Layout    string           `json:"layout,omitempty"`
	Archive   string           `json:"archive,omitempty"`
	// Image is the reference that was pushed, with the digest.
	Image string   `json:"image,omitempty"`
	Paths []string `json:"paths"`
}

type platformResult struct {
	Platform string `json:"platform"`
	Digest   string `json:"digest"`
}

func newResult(request *request, index v1.ImageIndex, paths []string) (*result, error) {
	digest, err := index.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest the image index: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the image index: %w", err)
	}
	built := &result{Digest: digest.String(), Layout: request.layout, Archive: request.archive, Paths: paths}
	for _, image := range manifest.Manifests {
		built.Platforms = append(built.Platforms, platformResult{Platform: image.Platform.String(), Digest: image.Digest.String()})
	}
	if request.push != nil {
		built.Image = request.push.String() + "@" + built.Digest
	}
	return built, nil
}

func (r *result) print(to io.Writer, format string) error {
	content := []byte(r.text())
	if format == formatJSON {
		var err error
		if content, err = json.MarshalIndent(r, "", "  "); err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		content = append(content, '\n')
	}
	if _, err := (terminal.Writer{W: to}).Write(content); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (r *result) text() string {
	var platforms []string
	for _, platform := range r.Platforms {
		platforms = append(platforms, platform.Platform)
	}
	text := &strings.Builder{}
	for _, line := range [][2]string{
		{"digest", r.Digest},
		{"platforms", strings.Join(platforms, ", ")},
		{"paths", fmt.Sprint(len(r.Paths))},
		{"layout", r.Layout},
		{"archive", r.Archive},
		{"image", r.Image},
	} {
		if line[1] != "" {
			_, _ = fmt.Fprintf(text, "%-10s %s\n", line[0]+":", line[1])
		}
	}
	return text.String()
}
