#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Tests the operator on each supported combination of versions, and writes the result of each to the table in
# docs/operations.md. A combination is "KUBERNETES KUBELET OPENKRUISE CONTAINERD". Arguments choose combinations by their first
# words: hack/test-versions.sh 1.34 '1.37.2 1.34'. It needs Linux and root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=docs/operations.md section=versions
# shellcheck source=hack/cluster-tests.sh
source hack/cluster-tests.sh

# OpenKruise and containerd change in a few combinations only: if each of them passes, so does each version.
combinations=(
	"1.34.10 1.34.10 1.8.3 debian"
	"1.35.8 1.35.8 1.8.3 debian"
	"1.36.4 1.36.4 1.8.3 1.7.36"
	"1.37.2 1.37.2 1.8.3 debian"
	"1.37.2 1.37.2 1.9.1 2.4.2"
	# The oldest kubelets that this API server supports.
	"1.37.2 1.34.10 1.8.3 debian"
)

chosen() {
	(($# > 1)) || return 0
	local prefix
	for prefix in "${@:2}"; do
		[[ $1 == "$prefix"* ]] && return 0
	done
	return 1
}

# row prints what the tests of the combination on the running cluster show, as the last columns of its row.
row() {
	local files=$results/${combination// /-} tests matrix reversals replayed
	local log=$files.log report=$files-bench.json
	export E2E_RECORD=$files-recordings
	make --no-print-directory run-e2e E2E_ARGS="-skip '^Test(Tools|OutcomeMatrix)'" >"$log" 2>&1 || failed "tests: $combination"
	# All rows of the matrices together with the other tests are more than the node can run.
	make --no-print-directory test-e2e-matrix >>"$log" 2>&1 || failed "outcome matrices: $combination"
	grep -E '^(--- FAIL|FAIL)' "$log" >&2 || true
	tests="$(count 'PASS: Test[^/]*( |$)' "$log") passed, $(count 'FAIL: Test[^/]*( |$)' "$log") failed, $(count 'SKIP: Test[^/]*( |$)' "$log") skipped"
	matrix="$(count 'PASS: TestOutcomeMatrix[^/]*/' "$log") of $(count '(PASS|FAIL): TestOutcomeMatrix[^/]*/' "$log")"
	make --no-print-directory replay RECORDINGS="$E2E_RECORD" >"$files-replay.log" 2>&1 || failed "replay: $combination"
	replayed=$(sed -nE 's/^([0-9]+) transitions, .* ([0-9]+) divergences$/\1, \2/p' "$files-replay.log")
	make --no-print-directory bench BENCH_ARGS="--parts reversals --reversal-jobs 100 --output $report --replace" >"$files-bench.log" 2>&1 ||
		{ tail -n 20 "$files-bench.log" >&2; failed "100 mixed Jobs: $combination"; }
	reversals=$(grep -oE '"(phaseReversals|wrongOutcomes)": *[0-9]+' "$report" | grep -oE '[0-9]+$' | paste -sd, | sed 's/,/, /')
	echo "$(date -u +%F) | $tests | $matrix | ${replayed:-none} | ${reversals:-not finished} |"
}

for combination in "${combinations[@]}"; do
	chosen "$combination" "$@" || continue
	read -r kubernetes kubelet kruise containerd <<<"$combination"
	echo "==> Kubernetes $kubernetes, kubelets $kubelet, OpenKruise $kruise, containerd $containerd"
	make --no-print-directory cluster-down
	export K8S_VERSION=$kubernetes KUBELET_VERSION=$kubelet KRUISE_VERSION=$kruise CONTAINERD_VERSION=${containerd#debian}
	make --no-print-directory cluster-up cluster-deploy
	if [[ $containerd == debian ]]; then
		containerd=$(dpkg-query --show --showformat '${source:Upstream-Version}' containerd)
		containerd=${containerd%%~*}
	fi
	publish "| $kubernetes | $kubelet | $kruise | $containerd |" "| $kubernetes | $kubelet | $kruise | $containerd | $(row)"
done
finish
