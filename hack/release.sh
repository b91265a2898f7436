#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds what a release publishes. The arguments are the version, which must be that of the sources, and a directory. The result is in
# DIRECTORY/VERSION. Builds of one commit with one version of Go are equal byte by byte.
set -euo pipefail
version=$1 directory=$2/$1
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
	echo "error: $*" >&2
	exit 1
}
step() { echo "==> $*" >&2; }

released=$(sed -n 's/^appVersion: //p' config/chart/Chart.yaml)
[[ $version == "$released" ]] || fail "the sources have version $released, not '$version'"
[[ -z $(git status --porcelain) ]] || fail "the working directory is not its commit: commit or stash the changes"
# The page of a release keeps line breaks, so each paragraph and entry becomes one line. Relative links become links to files of the tag.
notes=$(awk -v section="[${version#v}]" '
	/^## / { on = ($2 == section); next }
	!on || /^\[[^]]*\]: / { next }
	{
		starts = !open || /^ *- / || /^#/ || /^$/
		if (!starts) sub(/^ +/, "")
		printf "%s%s", (starts ? "\n" : " "), $0
		open = !/^#/ && !/^$/
	}' CHANGELOG.md | sed -E "s|\]\(([^):#/ ][^): ]*)\)|](https://github.com/sidecar-termination/operator/blob/$version/\1)|g")
[[ -n $notes ]] || fail "CHANGELOG.md has no section [${version#v}]"

rm -rf "$directory"
step "images"
go run ./hack/packaging images --output="$directory"
step "manifests, chart and component"
go run ./hack/packaging manifests --pin-images --output="$directory"
step "kubectl plugin"
go run ./hack/packaging plugin --output="$directory"
step "krew manifest"
{
	cat <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: sidecar-termination
spec:
  version: $version
  homepage: https://github.com/sidecar-termination/operator
  shortDescription: Explain and finish Jobs that wait for sidecars
  description: |
    Says why a Job's pod does not finish, finds Jobs that may hang because of
    their sidecars, checks policies and the installation, and ends the
    sidecars of stuck pods.
  platforms:
EOF
	for archive in "$directory"/kubectl-sidecar_termination-*.tar.gz; do
		platform=$(basename "$archive" .tar.gz)
		platform=${platform#kubectl-sidecar_termination-}
		program=kubectl-sidecar_termination
		[[ $platform != windows-* ]] || program+=.exe
		cat <<EOF
    - selector:
        matchLabels: {os: ${platform%-*}, arch: ${platform#*-}}
      uri: https://github.com/sidecar-termination/operator/releases/download/$version/$(basename "$archive")
      sha256: $(sha256sum "$archive" | cut -d' ' -f1)
      bin: $program
EOF
	done
} >"$directory/krew.yaml"
step "SBOMs"
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$programs/" . ./cmd/kubectl-sidecar_termination
mv "$programs/operator" "$programs/sidecar-termination-operator"
for program in "$programs"/*; do
	bin/cyclonedx-gomod bin -json -std -short-purls -noserial -notimestamp -version "$version" \
		-output "$directory/$(basename "$program").cdx.json" "$program"
done
step "checksums"
sums=$(cd "$directory" && find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort | xargs sha256sum)
echo "$sums" >"$directory/SHA256SUMS"
printf '%s\n' "$notes" | sed '/./,$!d' >"$directory/release-notes.md"
du -ah --max-depth=2 "$directory" >&2
