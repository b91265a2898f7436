#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end tests on each supported combination of versions, and writes the results to the table in docs/support.md. A
# combination is "KUBERNETES KUBELET OPENKRUISE". Arguments choose combinations by their first words: hack/test-versions.sh 1.36
# '1.37.2 1.34'. LONG=1 runs all rows of the outcome matrices. Tests of faults do not run. It goes on after a failure, and fails at the
# end. It needs Linux and root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# OpenKruise and the kubelets change in one combination each: if each of them passes, so does each version.
combinations=(
	"1.34.10 1.34.10 1.8.3"
	"1.35.8 1.35.8 1.8.3"
	"1.36.4 1.36.4 1.8.3"
	"1.37.2 1.37.2 1.8.3"
	"1.37.2 1.37.2 1.9.1"
	# The oldest kubelets that this API server supports.
	"1.37.2 1.34.10 1.8.3"
)
code=0

# count prints how many lines of the log match.
count() { grep -cE -- "$1" "$log" || true; }

# test_combination runs the tests on a new cluster of the combination $1, and writes its row.
test_combination() {
	local key="| ${1// / | } |" row cells='TestOutcomeMatrix[A-Za-z]*/'
	read -r K8S_VERSION KUBELET_VERSION KRUISE_VERSION <<<"$1"
	export K8S_VERSION KUBELET_VERSION KRUISE_VERSION
	echo "==> Kubernetes $K8S_VERSION, kubelets $KUBELET_VERSION, OpenKruise $KRUISE_VERSION"
	log=$(mktemp)
	make --no-print-directory cluster-down cluster-up cluster-deploy
	make --no-print-directory run-e2e E2E_ARGS="-skip '^Test(Tools|Faults)'" >"$log" 2>&1 || { code=1 && echo "failed: see $log" >&2; }
	row="$key $(date -u +%F) | $(count '^--- PASS') passed, $(count '^--- FAIL') failed, $(count '^--- SKIP') skipped"
	row+=" | $(count "^ +--- PASS: $cells") of $(count "^ +--- (PASS|FAIL): $cells") |"
	sed -i "s#^$key.*#$row#" docs/support.md
	echo "$row"
}

(($# > 0)) || set -- 1
for combination in "${combinations[@]}"; do
	for prefix in "$@"; do
		if [[ $combination == "$prefix"* ]]; then
			test_combination "$combination"
			break
		fi
	done
done
make --no-print-directory cluster-down
exit "$code"
