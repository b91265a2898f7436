// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// rebuild builds the release again with the parameters of its provenance, and compares every file and image.
func (r *release) rebuild(ctx context.Context) (err error) {
	switch {
	case r.Rebuild == nil:
		r.skip("rebuild: not requested")
		return nil
	case r.parameters == nil:
		r.skip("rebuild: the provenance that names the commit cannot be read")
		return nil
	}
	directory, err := os.MkdirTemp("", "rebuild-")
	if err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	if err := r.Rebuild(ctx, directory, *r.parameters); err != nil {
		r.fail("rebuild: %v", err)
		return nil
	}
	got, err := contents(r.Directory)
	if err != nil {
		return err
	}
	want, err := contents(directory)
	if err != nil {
		return err
	}
	before, compared := r.failed, 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		content, ok := got[name]
		switch {
		case r.absent(name) || (strings.Contains(name, "/") && !strings.Contains(name, "/blobs/")):
			// The provenance has the digests of images and chart. The other files of a layout depend on who copied it.
			continue
		case !ok:
			r.fail("rebuild: %s is missing from the release", name)
		case content != want[name]:
			r.fail("rebuild: %s differs from what commit %s gives with %s: do not use this release", name, r.parameters.Commit, r.parameters.Go)
		}
		compared++
	}
	for name := range r.files {
		if _, ok := want[name]; !ok {
			r.fail("rebuild: commit %s does not give the file %s", r.parameters.Commit, name)
		}
	}
	r.passIf(before, "rebuild: %d files of commit %s are the same byte by byte", compared, r.parameters.Commit)
	return nil
}

// contents returns the digests of all files below a directory.
func contents(directory string) (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found[filepath.ToSlash(name)] = dist.Digest(content)
		return nil
	})
	return found, err
}

// extraBlobs checks that a layout has only the files of the image index.
func extraBlobs(directory string, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	known := map[string]bool{"oci-layout": true, "index.json": true, blob(digest): true}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		content, err := image.Manifest()
		if err != nil {
			return err
		}
		known[blob(descriptor.Digest)], known[blob(content.Config.Digest)] = true, true
		for _, layer := range content.Layers {
			known[blob(layer.Digest)] = true
		}
	}
	found, err := contents(directory)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !known[name] {
			return fmt.Errorf("%s is not a part of the image", name)
		}
	}
	return nil
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
