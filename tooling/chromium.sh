#!/usr/bin/env bash
# Checks that headless Chromium is installed, for the browser tests of the SRE portal. As root on Debian it installs it if it is
# missing; otherwise it prints what to install, and the tests are skipped.
set -euo pipefail

found() { command -v chromium-headless-shell >/dev/null; }

if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing headless Chromium" >&2
	# The recommended packages start services that the tests do not need.
	"$(dirname "$0")/apt.sh" --no-install-recommends chromium-headless-shell || echo "installing headless Chromium failed" >&2
	if found; then exit 0; fi
fi
echo "chromium-headless-shell was not found: install it (Debian: apt-get install --no-install-recommends chromium-headless-shell); without it the browser tests of the portal are skipped" >&2
