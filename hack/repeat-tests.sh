#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of packages that need an API server again and again, each time in another order and on an API server of their
# own: some of them install the operator, which can be done once. A run that fails is shown, and does not keep the others from
# being tried. There is one line for each package at its end. Usage: repeat-tests.sh COUNT PARALLEL RUN PACKAGE...
set -euo pipefail

count=$1 parallel=$2 run=$3
shift 3
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

code=0
for package in "$@"; do
	began=$SECONDS failures=0
	if ! go test -race -tags integration -c -o "$directory/tests" "$package"; then
		echo "FAIL $package does not compile"
		code=1
		continue
	fi
	for ((number = 1; number <= count; number++)); do
		(cd "$package" && "$directory/tests" -test.run "$run" -test.shuffle on -test.parallel "$parallel" -test.timeout 60m) \
			>"$directory/output" 2>&1 || {
			failures=$((failures + 1))
			echo "==> run $number of $package has failed"
			cat "$directory/output"
		}
	done
	result=ok
	if ((failures > 0)); then
		result=FAIL
		code=1
	fi
	echo "$result $package $count runs, $failures failed, $((SECONDS - began))s"
done
exit "$code"
