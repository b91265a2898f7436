// SPDX-License-Identifier: Apache-2.0

// Package checkout installs a checkout with images of one's own: it pushes the images that package images built, writes
// them as archives for clusters without a registry, and writes a kustomization that uses them.
package checkout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"sigs.k8s.io/kustomize/api/pkg/util"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/images"
)

// released is the repository of the images in config/default.
const released = "ghcr.io/sidecar-termination/"

// errNoImage says how to name an image.
var errNoImage = errors.New("no image: set IMG, as in IMG=registry.example/team/" + images.Operator + ":dev")

// References are the names of the two images, with a tag or a digest.
type References struct {
	Operator  string
	QuickExit string
}

// complete returns the references. Without a name for the quick-exit image, it is quick-exit in the same place, with the same
// tag. If the operator's image has no tag, it is an error: nodes pull the tag latest again at each start of a pod.
func (r References) complete() (References, error) {
	if r.Operator == "" {
		return r, errNoImage
	}
	repository, tag, digest := util.SplitImageName(r.Operator)
	switch {
	case tag == "" && digest == "":
		return r, fmt.Errorf("the image %s has no tag: set IMG=%[1]s:dev", r.Operator)
	case r.QuickExit == "" && tag == "":
		return r, fmt.Errorf("the image %s has a digest and no tag: name the other image as well, QUICK_EXIT_IMG=%s@sha256:…",
			r.Operator, path.Join(path.Dir(repository), images.QuickExit))
	case r.QuickExit == "":
		r.QuickExit = path.Join(path.Dir(repository), images.QuickExit) + ":" + tag
	}
	return r, nil
}

// named are the references by the names that package images gives their layouts.
func (r References) named() map[string]string {
	return map[string]string{images.Operator: r.Operator, images.QuickExit: r.QuickExit}
}

// Push uploads the images in the directory of layouts under their references. It moves tags that exist. It returns the references with
// digests.
func Push(ctx context.Context, layouts string, references References) ([]string, error) {
	return each(layouts, references, func(_ string, reference name.Tag, index v1.ImageIndex) (string, error) {
		digest, err := index.Digest()
		if err != nil {
			return "", fmt.Errorf("digest the image index: %w", err)
		}
		return reference.String() + "@" + digest.String(), ociimage.Push(ctx, reference, index)
	})
}

// Save writes the images of one platform as archives into a directory, and returns their paths. `kind load image-archive` and
// `minikube image load` read them.
func Save(layouts, directory string, references References, platform v1.Platform) ([]string, error) {
	return each(layouts, references, func(image string, reference name.Tag, index v1.ImageIndex) (string, error) {
		found, err := partial.FindImages(index, match.Platforms(platform))
		if err != nil {
			return "", fmt.Errorf("find the image for %s: %w", platform, err)
		}
		if len(found) != 1 {
			return "", fmt.Errorf("%s has %d images for %s", reference, len(found), platform)
		}
		file := filepath.Join(directory, image+".tar")
		return file, ociimage.WriteArchive(file, reference, found[0])
	})
}

// each calls a function with each image and its reference, and returns the results.
func each(layouts string, references References, use func(image string, reference name.Tag, index v1.ImageIndex) (string, error)) ([]string, error) {
	references, err := references.complete()
	if err != nil {
		return nil, err
	}
	var results []string
	for _, image := range []string{images.Operator, images.QuickExit} {
		tag, err := name.NewTag(references.named()[image])
		if err != nil {
			return nil, fmt.Errorf("read the name of an image: %w", err)
		}
		index, err := ociimage.ReadLayout(filepath.Join(layouts, image))
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: run make docker-build first", err)
		}
		if err != nil {
			return nil, err
		}
		result, err := use(image, tag, index)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// WriteOverlay writes a kustomization that makes config/default use the images, in place of one that was there.
func WriteOverlay(config, directory string, references References) error {
	references, err := references.complete()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("create the directory of the kustomization: %w", err)
	}
	base, err := relative(directory, filepath.Join(config, "default"))
	if err != nil {
		return err
	}
	overlay := types.Kustomization{
		TypeMeta:    types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		SortOptions: &types.SortOptions{Order: types.FIFOSortOrder},
		Resources:   []string{base},
	}
	for _, image := range []string{images.Operator, images.QuickExit} {
		repository, tag, digest := util.SplitImageName(references.named()[image])
		overlay.Images = append(overlay.Images, types.Image{Name: released + image, NewName: repository, NewTag: tag, Digest: digest})
	}
	content, err := yaml.Marshal(overlay)
	if err != nil {
		return fmt.Errorf("encode the kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), content, 0o644); err != nil {
		return fmt.Errorf("write the kustomization: %w", err)
	}
	return nil
}

// relative returns the path of a directory from another one: kustomize permits no absolute paths.
func relative(from, to string) (string, error) {
	absolute, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", from, err)
	}
	target, err := filepath.Abs(to)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", to, err)
	}
	result, err := filepath.Rel(absolute, target)
	if err != nil {
		return "", fmt.Errorf("find the way to %s: %w", to, err)
	}
	return result, nil
}
