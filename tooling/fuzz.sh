#!/bin/bash
# fuzz.sh [TIME [MODULE...]] runs every fuzz target of the workspace's modules for TIME (default 30s) each, and reports which
# failed. Inputs are not minimized, because that takes most of the time of slow targets. `go test -list` finds the targets.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
shift $(($# > 0 ? 1 : 0))
modules=("$@")
if [ ${#modules[@]} -eq 0 ]; then
  mapfile -t modules < <(go list -m -f '{{.Dir}}')
fi
failed=()
count=0
for module in "${modules[@]}"; do
  for folder in $(grep -rl --include='*_test.go' '^func Fuzz' "$module" | xargs -r -n1 dirname | sort -u); do
    for target in $(cd "$folder" && go test -list '^Fuzz' . | grep '^Fuzz' || true); do
      echo "== ${folder#"$PWD"/} $target"
      count=$((count + 1))
      (cd "$folder" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x .) || failed+=("${folder#"$PWD"/} $target")
    done
  done
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "$count targets ran for $time each without a failure"
[ "$count" -gt 0 ]
