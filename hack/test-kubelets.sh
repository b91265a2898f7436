#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Tests the operator on the kubelets of hack/localcluster/kubelets, and writes the result of each to the table in
# docs/reliability.md. Arguments choose kubelets: hack/test-kubelets.sh slow evented-pleg. It needs Linux and root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=docs/reliability.md section=kubelets
# shellcheck source=hack/cluster-tests.sh
source hack/cluster-tests.sh
: "${K8S_VERSION:?run make test-kubelets}"

# row KUBELET TESTS prints the row of the running cluster. The model of make replay has no rules for these kubelets.
row() {
	local log=$results/$1.log result=passed cases figures
	E2E_RECORD='' go test -tags e2e -count=1 -timeout 60m -v -run "^($2)\$" ./e2e 2>&1 | tee "$log" >&2 || result=failed
	[[ $result == passed ]] || failed "tests: $1"
	cases="$(count 'PASS: Test[^/]*/[^/]*/' "$log") of $(count '(PASS|FAIL): Test[^/]*/[^/]*/' "$log")"
	figures=$(sed -n 's/.* figures: //p' "$log")
	echo "| $1 | $K8S_VERSION | $(date -u +%F) | ${2//|/, } | $result: $cases cases | ${figures:--} |"
}

(($# > 0)) || set -- ignore-phase ignore-phase-merge evented-pleg container-restart slow
for kubelet in "$@"; do
	case $kubelet in
	ignore-phase) tests='TestOutcomeMatrix|TestKubeletIgnoresPhase' ;;
	ignore-phase-merge) tests='TestKubeletIgnoresPhase' ;;
	*) tests='TestOutcomeMatrix' ;;
	esac
	echo "==> kubelet $kubelet"
	make --no-print-directory cluster-down
	export KUBELET=$kubelet
	if make --no-print-directory cluster-up cluster-deploy; then
		publish "| $kubelet | $K8S_VERSION |" "$(row "$kubelet" "$tests")"
	else
		failed "to start the cluster: $kubelet"
	fi
done
finish
