#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end tests and all rows of the outcome matrices on each supported combination of versions, and prints a row for
# each. A combination is "KUBERNETES KUBELET OPENKRUISE". Arguments choose combinations by their first words:
# hack/test-versions.sh 1.36 '1.37.2 1.34'. It goes on after a failure, and fails at the end. It needs Linux and root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# OpenKruise and the kubelets change in one combination each: if each of them passes, so does each version.
combinations=(
	"1.36.4 1.36.4 1.8.3"
	"1.37.2 1.37.2 1.8.3"
	"1.37.2 1.37.2 1.9.1"
	# The oldest kubelets that this API server supports.
	"1.37.2 1.34.10 1.8.3"
)
(($# > 0)) || set -- 1
rows=() code=0
for combination in "${combinations[@]}"; do
	for prefix in "$@"; do
		[[ $combination == "$prefix"* ]] || continue
		read -r K8S_VERSION KUBELET_VERSION KRUISE_VERSION <<<"$combination"
		export K8S_VERSION KUBELET_VERSION KRUISE_VERSION
		echo "==> Kubernetes $K8S_VERSION, kubelets $KUBELET_VERSION, OpenKruise $KRUISE_VERSION"
		log=$(mktemp) result=passed
		make --no-print-directory cluster-down cluster-up cluster-deploy
		LONG=1 make --no-print-directory run-e2e E2E_ARGS="-skip '^Test(Tools|Faults)'" >"$log" 2>&1 || result="failed, see $log"
		[[ $result == passed ]] || code=1
		rows+=("| ${combination// / | } | $(date -u +%F) | $result: $(grep -cE '^--- PASS' "$log" || true) tests, $(grep -cE '^ +--- PASS: TestOutcomeMatrix' "$log" || true) rows |")
		break
	done
done
make --no-print-directory cluster-down
printf '%s\n' "${rows[@]}"
exit "$code"
