# SPDX-License-Identifier: Apache-2.0

# For scripts that run tests on several local clusters, one after the other, and keep a row for each in a table of a document.
# Source it after setting document, and section, which is the name in the comments around the table. A script goes on after a
# failure, and fails at the end. It then keeps $results, where the logs are.

results=$(mktemp -d)
trap '[[ -s $results/failures ]] || rm -rf "$results"' EXIT
touch "$results/failures"

# failed WHAT adds a failure.
failed() { echo "failed $1" >>"$results/failures"; }

# count PATTERN FILE prints how many lines of go test -v match.
count() { grep -cE "^ *--- $1" "$2" || true; }

# publish KEY ROW replaces the table's row that starts with the key, or adds it.
publish() {
	KEY=$1 ROW=$2 SECTION=$section awk '
		index($0, "<!-- begin " ENVIRON["SECTION"] ":") == 1 { inside = 1 }
		index($0, "<!-- end " ENVIRON["SECTION"] " -->") == 1 { if (!done) print ENVIRON["ROW"]; inside = 0 }
		inside && index($0, ENVIRON["KEY"]) == 1 { print ENVIRON["ROW"]; done = 1; next }
		{ print }' "$document" >"$results/document"
	cp "$results/document" "$document"
}

# finish removes the last cluster, and fails if there was a failure.
finish() {
	make --no-print-directory cluster-down
	[[ -s $results/failures ]] || return 0
	cat "$results/failures" >&2
	echo "The logs are in $results" >&2
	return 1
}
