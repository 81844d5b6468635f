#!/bin/bash
# fuzz.sh [TIME [FOLDER...]] runs every fuzz target of the repository, or of the folders, for TIME (default 10s) each, and reports which
# failed. Inputs are not minimized, because that takes most of the time of slow targets. `go test -list` finds the targets.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
shift $(($# > 0 ? 1 : 0))
failed=()
count=0
for folder in $(git grep -l --untracked '^func Fuzz' -- "${@:-.}" | grep '_test\.go$' | xargs -r -n1 dirname | sort -u); do
  for target in $(cd "$folder" && go test -list '^Fuzz' . | grep '^Fuzz' || true); do
    echo "== $folder $target"
    count=$((count + 1))
    (cd "$folder" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x .) || failed+=("$folder $target")
  done
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "$count targets ran for $time each without a failure"
[ "$count" -gt 0 ]
