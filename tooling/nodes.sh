#!/usr/bin/env bash
# Builds what Kubernetes nodes need (see dev-infrastructure/kubernetes). As root on Debian it also installs the packages that they use, if
# they are missing. Elsewhere it prints what is missing and succeeds, because everything else works without nodes. In continuous
# integration (CI=true) it fails then.
set -euo pipefail

missing() {
	echo "Kubernetes nodes are not available: $*" >&2
	[ "${CI:-}" = true ] && exit 1
	exit 0
}

[ "$(uname -s)" = Linux ] || missing "they need Linux"
[ "$(id -u)" = 0 ] || missing "they need root"
path="/usr/sbin:/usr/bin:/sbin:/bin"
packages=()
PATH=$path command -v runc >/dev/null || packages+=(runc)
PATH=$path command -v nft >/dev/null || packages+=(nftables)
if [ ${#packages[@]} -gt 0 ]; then
	command -v apt-get >/dev/null || missing "install ${packages[*]}"
	echo "installing ${packages[*]}" >&2
	"$(dirname "$0")/apt.sh" --no-install-recommends "${packages[@]}"
fi
exec "$(dirname "$0")/third-party/build.sh" node
