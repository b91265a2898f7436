// SPDX-License-Identifier: Apache-2.0

package ociimage

// Labels returns the labels of an image of this project, which registries show.
func Labels(title, description string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.source":      "https://github.com/sidecar-termination/operator",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}
