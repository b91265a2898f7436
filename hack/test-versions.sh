#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Tests the operator on each supported combination of versions, and writes the result of each to the table in
# docs/operations.md. A combination is "KUBERNETES KUBELET OPENKRUISE". Arguments choose combinations by their first words:
# hack/test-versions.sh 1.34 '1.37.2 1.34'. It needs Linux and root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=docs/operations.md section=versions
# shellcheck source=hack/cluster-tests.sh
source hack/cluster-tests.sh

combinations=(
	"1.34.10 1.34.10 1.8.3"
	"1.35.8 1.35.8 1.8.3"
	"1.36.4 1.36.4 1.8.3"
	"1.37.2 1.37.2 1.8.3"
	"1.37.2 1.37.2 1.9.1"
	# The oldest kubelets that this API server supports.
	"1.37.2 1.34.10 1.8.3"
)

chosen() {
	(($# > 1)) || return 0
	local prefix
	for prefix in "${@:2}"; do
		[[ $1 == "$prefix"* ]] && return 0
	done
	return 1
}

# row KUBERNETES KUBELET OPENKRUISE prints the row of the running cluster.
row() {
	local log=$results/$1-$2-$3.log bench=$results/$1-$2-$3-bench.log report=$results/report.json tests matrix reversals
	E2E_ARGS='' MATRIX=all go test -tags e2e -count=1 -timeout 120m -v ./e2e/... >"$log" 2>&1 || echo "tests failed: $1 $2 $3" >>"$results/failures"
	grep -E '^(--- FAIL|FAIL)' "$log" >&2 || true
	tests="$(count 'PASS: Test[^/]*( |$)' "$log") passed, $(count 'FAIL: Test[^/]*( |$)' "$log") failed, $(count 'SKIP: Test[^/]*( |$)' "$log") skipped"
	matrix="$(count 'PASS: TestOutcomeMatrix[^/]*/' "$log") of $(count '(PASS|FAIL): TestOutcomeMatrix[^/]*/' "$log")"
	make --no-print-directory bench BENCH_ARGS="--parts reversals --reversal-jobs 100 --output $report --replace" >"$bench" 2>&1 ||
		{ tail -n 20 "$bench" >&2; echo "100 mixed Jobs failed: $1 $2 $3" >>"$results/failures"; }
	reversals=$(grep -oE '"(phaseReversals|wrongOutcomes)": *[0-9]+' "$report" | grep -oE '[0-9]+$' | paste -sd, | sed 's/,/, /')
	echo "| $1 | $2 | $3 | $(date -u +%F) | $tests | $matrix | ${reversals:-not finished} |"
}

for combination in "${combinations[@]}"; do
	chosen "$combination" "$@" || continue
	read -r kubernetes kubelet kruise <<<"$combination"
	echo "==> Kubernetes $kubernetes, kubelets $kubelet, OpenKruise $kruise"
	make --no-print-directory cluster-down
	export K8S_VERSION=$kubernetes KUBELET_VERSION=$kubelet KRUISE_VERSION=$kruise
	make --no-print-directory cluster-up cluster-deploy
	publish "| $kubernetes | $kubelet | $kruise |" "$(row "$kubernetes" "$kubelet" "$kruise")"
done
finish
