#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds the documentation site of the working tree into OUTPUT for URL, and checks its links.
#
# usage: build.sh OUTPUT URL
set -euo pipefail

output=$1 url=${2%/}/
cd "$(dirname "$0")/../.."

# The path of the URL, without the host.
root=/${url#*://*/}
[[ $url == *://* ]] || root=$url

rm -rf bin/site/html bin/site/source
mkdir -p bin/site/source
git ls-files -z --cached --others --exclude-standard --deduplicate -- '*.md' | tar --create --null --files-from=- | tar --extract --directory=bin/site/source
HUGO_CACHEDIR=$PWD/bin/site/cache HUGO_MODULE_PROXY=$(go env GOPROXY) \
	bin/hugo build --logLevel=error --noBuildLock --source=hack/site --baseURL="$url" --destination="$PWD/bin/site/html$root"
bin/htmltest --conf hack/site/htmltest.yaml bin/site/html
rm -rf "$output"
mkdir -p "$(dirname "$output")"
mv "bin/site/html$root" "$output"
