// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// EnsureEnvtest returns a directory that serves as KUBEBUILDER_ASSETS: kube-apiserver
// and kubectl of the Kubernetes version, and etcd.
func (b Builder) EnsureEnvtest(ctx context.Context, version string) (string, error) {
	kubernetes, err := b.Ensure(ctx, Kubernetes(version), "kube-apiserver", "kubectl")
	if err != nil {
		return "", err
	}
	etcd, err := b.Ensure(ctx, Etcd())
	if err != nil {
		return "", err
	}
	directory := filepath.Join(b.Cache, "envtest-"+version)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", fmt.Errorf("create the envtest directory: %w", err)
	}
	for name, from := range map[string]string{"kube-apiserver": kubernetes, "kubectl": kubernetes, "etcd": etcd} {
		link := filepath.Join(directory, name)
		if err := os.Symlink(filepath.Join(from, name), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("link %s for envtest: %w", name, err)
		}
	}
	return directory, nil
}
