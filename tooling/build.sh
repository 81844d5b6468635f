#!/usr/bin/env bash
# Builds what a region of this checkout runs: the third-party programs, and ours as one program with a link for each. What has not changed
# is not built again. HCPMESH_RACE=1 builds ours with Go's race detector, into a folder of their own.
#
#   build.sh            what a region runs
#   build.sh hcpctl     also hcpctl
set -euo pipefail
cd "$(dirname "$0")/.."
source tooling/compile.sh

bin=.build/bin
flags=(-ldflags='-s -w') # as in releases: without debug information, which is half of a program
if [ "${HCPMESH_RACE:-}" = 1 ]; then
	bin=.build/race
	flags+=(-race)
fi
packages=(./dev-infrastructure/cmd/region-programs)
[ "${1:-}" != hcpctl ] || packages+=(./tooling/hcpctl/cmd/hcpctl)
mkdir -p $bin
export GOGC=${GOGC:-400} # the compiler needs more memory and a quarter less time

# At the first build, the modules of our programs are downloaded while the third-party programs compile.
[ -e .build/third-party/bin/etcd ] || go list -deps "${packages[@]}" >/dev/null & download=$!
tooling/third-party/build.sh
wait $download

# The go command sets the time of a program also if the program is up to date, and runs a test again if a file that it read is newer. So a program
# with the same build ID gets its previous time.
previous=$(mktemp -d)
trap 'rm -r "$previous"' EXIT
for package in "${packages[@]}"; do
	program=$bin/${package##*/} before=$previous/${package##*/}
	if go tool buildid "$program" >"$before" 2>/dev/null; then touch -r "$program" "$before"; else rm "$before"; fi
done
compile "our programs" -o=$bin/ "${flags[@]}" "${packages[@]}"
for package in "${packages[@]}"; do
	program=$bin/${package##*/} before=$previous/${package##*/}
	[ ! -e "$before" ] || [ "$(go tool buildid "$program")" != "$(<"$before")" ] || touch -r "$before" "$program"
done
$bin/region-programs links $bin
