#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Tests the operator on each supported combination of versions, and writes the result of each to the table in
# docs/operations.md. A combination is "KUBERNETES KUBELET OPENKRUISE". Arguments choose combinations by their first words:
# hack/test-versions.sh 1.34 '1.37.2 1.34'. It needs Linux and root. It goes on after a failure and fails at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=docs/operations.md
combinations=(
	"1.34.10 1.34.10 1.8.3"
	"1.35.8 1.35.8 1.8.3"
	"1.36.4 1.36.4 1.8.3"
	"1.37.2 1.37.2 1.8.3"
	"1.37.2 1.37.2 1.9.1"
	# The oldest kubelets that this API server supports.
	"1.37.2 1.34.10 1.8.3"
)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

chosen() {
	(($# > 1)) || return 0
	local prefix
	for prefix in "${@:2}"; do
		[[ $1 == "$prefix"* ]] && return 0
	done
	return 1
}

# count PATTERN FILE prints how many lines of go test -v match.
count() { grep -cE "^ *--- $1" "$2" || true; }

# row KUBERNETES KUBELET OPENKRUISE prints the row of the running cluster.
row() {
	local log=$results/log report=$results/report.json tests matrix reversals
	E2E_ARGS='' MATRIX=all go test -tags e2e -count=1 -timeout 120m -v ./e2e/... >"$log" 2>&1 || echo "tests failed: $1 $2 $3" >>"$results/failures"
	grep -E '^(--- FAIL|FAIL)' "$log" >&2 || true
	tests="$(count 'PASS: Test[^/]*( |$)' "$log") passed, $(count 'FAIL: Test[^/]*( |$)' "$log") failed, $(count 'SKIP: Test[^/]*( |$)' "$log") skipped"
	matrix="$(count 'PASS: TestOutcomeMatrix[^/]*/' "$log") of $(count '(PASS|FAIL): TestOutcomeMatrix[^/]*/' "$log")"
	make --no-print-directory bench BENCH_ARGS="--parts reversals --reversal-jobs 100 --output $report --replace" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; echo "100 mixed Jobs failed: $1 $2 $3" >>"$results/failures"; }
	reversals=$(grep -oE '"(phaseReversals|wrongOutcomes)": *[0-9]+' "$report" | grep -oE '[0-9]+$' | paste -sd, | sed 's/,/, /')
	echo "| $1 | $2 | $3 | $(date -u +%F) | $tests | $matrix | ${reversals:-not finished} |"
}

# publish KEY ROW replaces the table's row that starts with the key, or adds it.
publish() {
	KEY=$1 ROW=$2 awk '
		/<!-- begin versions/ { inside = 1 }
		/<!-- end versions/ { if (!done) print ENVIRON["ROW"]; inside = 0 }
		inside && index($0, ENVIRON["KEY"]) == 1 { print ENVIRON["ROW"]; done = 1; next }
		{ print }' "$document" >"$results/document"
	cp "$results/document" "$document"
}

touch "$results/failures"
for combination in "${combinations[@]}"; do
	chosen "$combination" "$@" || continue
	read -r kubernetes kubelet kruise <<<"$combination"
	echo "==> Kubernetes $kubernetes, kubelets $kubelet, OpenKruise $kruise"
	make --no-print-directory cluster-down
	export K8S_VERSION=$kubernetes KUBELET_VERSION=$kubelet KRUISE_VERSION=$kruise
	make --no-print-directory cluster-up deploy
	publish "| $kubernetes | $kubelet | $kruise |" "$(row "$kubernetes" "$kubelet" "$kruise")"
done
make --no-print-directory cluster-down
cat "$results/failures" >&2
[[ ! -s $results/failures ]]
