// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/internal/quickexit/image"
)

// request is the validated content of the flags.
type request struct {
	platforms []v1.Platform
	// layout and archive are paths; at most one of them is set.
	layout, archive string
	tag             name.Tag
	// push is nil without --push.
	push name.Reference
}

// request validates the flags without reading files. An error names the flag.
func (o *options) request() (*request, error) {
	if o.format != formatText && o.format != formatJSON {
		return nil, fmt.Errorf("--format is %q; it must be %s or %s", o.format, formatText, formatJSON)
	}
	if o.output == "" && o.push == "" {
		return nil, errors.New("nothing to do: one of --output and --push must be given")
	}
	if len(o.containers) > 0 && len(o.files) == 0 {
		return nil, errors.New("--container selects from the files of --from-file, and no file was given")
	}
	if first := slices.Index(o.files, "-"); first >= 0 && slices.Contains(o.files[first+1:], "-") {
		return nil, errors.New("--from-file - may be given once: the standard input can be read once only")
	}
	result := &request{}
	var err error
	if result.platforms, err = parsePlatforms(o.platforms); err != nil {
		return nil, err
	}
	if result.tag, err = name.NewTag(o.tag); err != nil {
		return nil, fmt.Errorf("--tag is %q; it must be the name of an image, as in quick-exit:v1: %w", o.tag, err)
	}
	if err := result.parseOutput(o.output); err != nil {
		return nil, err
	}
	if o.push == "" {
		return result, nil
	}
	references := []name.Option{name.StrictValidation}
	if o.insecure {
		references = append(references, name.Insecure)
	}
	reference, err := name.NewTag(o.push, references...)
	if err != nil {
		return nil, fmt.Errorf("--push is %q; it must be registry, name and tag, as in registry.example/quick-exit:v1: %w", o.push, err)
	}
	result.push = reference
	return result, nil
}

func (r *request) parseOutput(output string) error {
	if output == "" {
		return nil
	}
	form, path, _ := strings.Cut(output, ":")
	switch {
	case path == "":
		return fmt.Errorf("--output is %q; it must be oci:DIRECTORY or tar:FILE", output)
	case form == "oci":
		r.layout = path
	case form == "tar" && len(r.platforms) > 1:
		return fmt.Errorf("--output is %q; a tarball has the image of one platform: add --platform linux/amd64 or --platform linux/arm64", output)
	case form == "tar":
		r.archive = path
	default:
		return fmt.Errorf("--output is %q; it must be oci:DIRECTORY or tar:FILE", output)
	}
	return nil
}

// parsePlatforms returns the named platforms in the order of image.Platforms, so that the order of flags does not change a
// digest.
func parsePlatforms(names []string) ([]v1.Platform, error) {
	known := image.Platforms()
	if len(names) == 0 {
		return known, nil
	}
	var all []string
	for _, platform := range known {
		all = append(all, platform.String())
	}
	for _, platform := range names {
		if !slices.Contains(all, platform) {
			return nil, fmt.Errorf("--platform is %q; it must be %s", platform, strings.Join(all, " or "))
		}
	}
	return slices.DeleteFunc(known, func(platform v1.Platform) bool { return !slices.Contains(names, platform.String()) }), nil
}
