#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Installs Chromium from the distribution where it is missing. Where that cannot be, it says why, in one line, and fails.
set -euo pipefail

cannot() {
	echo "$1"
	exit 1
}

for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then
		exit 0
	fi
done
command -v apt-get >/dev/null || cannot "Chromium is not installed, and there is no apt-get to install it with"
[[ "$(id -u)" == 0 ]] || cannot "Chromium is not installed, and only root can install it"
apt-get update -q >&2
apt-get install -q -y --no-install-recommends chromium fonts-liberation >&2 || cannot "apt-get could not install the package chromium"
