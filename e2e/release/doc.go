// SPDX-License-Identifier: Apache-2.0

// Package release tests what `make release-dry-run` has built, on the local cluster: it installs each package, upgrades it while Jobs
// run, rolls it back and removes it. It needs a cluster without the operator: `make test-release` brings one up.
package release
