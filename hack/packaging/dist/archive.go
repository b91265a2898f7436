// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/sidecar-termination/operator/hack/ociimage"
)

// archive returns a compressed tar archive. Equal files give equal bytes.
func archive(files ociimage.Rootfs) ([]byte, error) {
	content, err := files.Archive()
	if err != nil {
		return nil, err
	}
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	_, err = compressed.Write(content)
	if err := errors.Join(err, compressed.Close()); err != nil {
		return nil, fmt.Errorf("write an archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// addTree adds the files below a directory to others, below another directory.
func addTree(files map[string]string, directory, below string) error {
	from := os.DirFS(directory)
	err := fs.WalkDir(from, ".", func(name string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		files[path.Join(below, name)] = string(content)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the files of %s: %w", directory, err)
	}
	return nil
}
