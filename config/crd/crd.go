// SPDX-License-Identifier: Apache-2.0

// Package crd holds the definitions of the policies, for those who check policies without a cluster.
package crd

import "embed"

// Definitions are the CustomResourceDefinitions as they are installed.
//
//go:embed bases/*.yaml
var Definitions embed.FS
