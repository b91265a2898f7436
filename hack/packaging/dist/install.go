// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"cmp"
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
)

// released is the repository of the images in config/default.
const released = "ghcr.io/sidecar-termination/"

// References are the names of the two images, with a tag or a digest.
type References struct {
	Operator  string
	QuickExit string
}

// complete returns the references in the order of imageNames. Without a name for the quick-exit image, it is quick-exit in the same
// place, with the same tag. If the operator's image has no tag, it is an error: nodes pull the tag latest again at each start of a pod.
func (r References) complete() ([]string, error) {
	if r.Operator == "" {
		return nil, errors.New("no image: set IMG, as in IMG=registry.example/team/" + OperatorImage + ":dev")
	}
	repository, tag, digest := util.SplitImageName(r.Operator)
	quickExit := path.Join(path.Dir(repository), QuickExitImage)
	switch {
	case tag == "" && digest == "":
		return nil, fmt.Errorf("the image %s has no tag: set IMG=%[1]s:dev", r.Operator)
	case r.QuickExit == "" && tag == "":
		return nil, fmt.Errorf("the image %s has a digest and no tag: name the other image as well, QUICK_EXIT_IMG=%s@sha256:…", r.Operator, quickExit)
	}
	return []string{r.Operator, cmp.Or(r.QuickExit, quickExit+":"+tag)}, nil
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
	completed, err := references.complete()
	if err != nil {
		return nil, err
	}
	var results []string
	for i, image := range imageNames {
		tag, err := name.NewTag(completed[i])
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

// WriteOverlay writes a kustomization that makes an installation, such as config/default, use the images, in place of one that was there.
func WriteOverlay(installation, directory string, references References) error {
	completed, err := references.complete()
	if err != nil {
		return err
	}
	// kustomize permits no absolute paths.
	from, fromErr := filepath.Abs(directory)
	to, toErr := filepath.Abs(installation)
	base, err := filepath.Rel(from, to)
	if err := errors.Join(fromErr, toErr, err); err != nil {
		return fmt.Errorf("find the way from %s to %s: %w", directory, installation, err)
	}
	overlay := types.Kustomization{
		TypeMeta:    types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		SortOptions: &types.SortOptions{Order: types.FIFOSortOrder},
		Resources:   []string{base},
	}
	for i, image := range imageNames {
		repository, tag, digest := util.SplitImageName(completed[i])
		overlay.Images = append(overlay.Images, types.Image{Name: released + image, NewName: repository, NewTag: tag, Digest: digest})
	}
	content, err := yaml.Marshal(overlay)
	if err != nil {
		return fmt.Errorf("encode the kustomization: %w", err)
	}
	_, err = write(directory, map[string][]byte{"kustomization.yaml": content})
	return err
}
