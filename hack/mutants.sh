#!/usr/bin/env bash
# Usage: hack/mutants.sh PACKAGE...
# Changes the code of each package and its subpackages, one operator, condition or loop exit at a time, and runs the unit
# tests of the changed package. Prints the mutants that no test notices or whose tests do not end. Fails unless more than
# MUTANTS_KILLED (95) percent of each PACKAGE's mutants are killed; 0 turns that off.
set -euo pipefail

root=$(git rev-parse --show-toplevel)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# gremlins copies the whole module for each worker: leave out what was built.
git -C "$root" ls-files -z --cached --others --exclude-standard | (cd "$root" && tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null) |
	tar -C "$copy" -xf -
cd "$copy"

GO=$(command -v go)
# Without vet, because go test would count a mutant as killed that only vet notices.
export GO GOFLAGS="${GOFLAGS:-} -vet=off" PATH="$root/hack/tools/checks/bin:$PATH"
# The tests that a mutant meets last.
export MUTANTS_SLOW='TestEveryState|TestSimulation'
failed=0
for package in "$@"; do
	echo "==> $package"
	"$root/bin/gremlins" unleash --invert-logical --invert-loopctrl --invert-assignments --timeout-coefficient 10 \
		--output-statuses lt --threshold-efficacy "${MUTANTS_KILLED:-95}" "./$package" || failed=1
done
exit $failed
