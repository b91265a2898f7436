#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds the documentation site into OUTPUT for URL, and checks its links.
#
# usage: build.sh OUTPUT URL VERSION...
#
# A VERSION is development, which is what the working tree has, a tag, or NAME=REFERENCE. The first is at the root of the site,
# and each other version is in a directory with its name.
set -euo pipefail

output=$1 url=${2%/}/
shift 2
cd "$(dirname "$0")/../.."

# The path of the URL, without the host.
root=/${url#*://*/}
[[ $url == *://* ]] || root=$url

names=("${@%%=*}")
rm -rf bin/site/html
for version; do
	name=${version%%=*} reference=${version#*=}
	directory=$name/
	[[ $name != "${names[0]}" ]] || directory=
	rm -rf bin/site/source
	mkdir -p bin/site/source
	if [[ $reference == development ]]; then
		git ls-files -z --cached --others --exclude-standard --deduplicate -- '*.md' | tar --create --null --files-from=-
		reference=main
	else
		git archive "$reference" -- '*.md'
	fi > bin/site/source.tar
	tar --extract --file=bin/site/source.tar --directory=bin/site/source
	HUGO_PARAMS_VERSION=$name HUGO_PARAMS_REFERENCE=$reference HUGO_PARAMS_VERSIONS="${names[*]}" HUGO_PARAMS_ROOT=$root HUGO_CACHEDIR=$PWD/bin/site/cache HUGO_MODULE_PROXY=$(go env GOPROXY) \
		bin/hugo build --logLevel=error --noBuildLock --source=hack/site --baseURL="$url$directory" --destination="$PWD/bin/site/html$root$directory"
done
bin/htmltest --conf hack/site/htmltest.yaml bin/site/html
rm -rf "$output"
mkdir -p "$(dirname "$output")"
mv "bin/site/html$root" "$output"
