#!/usr/bin/env bash
# Installs Debian packages: apt.sh OPTION... PACKAGE..., with the options and packages of `apt-get install`. It needs root. Targets of make run
# at the same time, and apt-get fails while another one runs, so that installations wait for each other.
set -euo pipefail

mkdir -p "$(dirname "$0")/../.build"
exec 9>"$(dirname "$0")/../.build/apt.lock"
flock 9
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq "$@" >&2 9>&-
