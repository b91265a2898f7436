#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds what stands for the release before this one, for the tests of upgrades: the manifests, the chart and the images of this
# commit under another version, for this machine's processor alone. The arguments are the version, the other version and the
# directory of the result.
set -euo pipefail
version=$1 previous=$2
directory=$(realpath -m "$3")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
git archive HEAD | tar -x -C "$sources"
cd "$sources"
old=${version#v}
grep -rlF "$old" internal/settings config/default config/manager config/chart | xargs sed -i "s/${old//./\\.}/${previous#v}/g"
mkdir -p "$directory"
go run ./hack/packaging manifests --output="$directory"
go run ./hack/packaging images --this-machine --output="$directory"
