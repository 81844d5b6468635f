#!/usr/bin/env bash
# Checks that the PostgreSQL programs are installed. As root on Debian it installs them if they are missing; otherwise it prints
# what to install. It starts nothing: regions and tests run their own servers.
set -euo pipefail

found() {
	local dir
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then return 0; fi
	done
	command -v initdb >/dev/null && command -v postgres >/dev/null
}

if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing PostgreSQL" >&2
	# Without this setting the package creates and starts a database cluster, which is not used.
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
	"$(dirname "$0")/apt.sh" -o Dpkg::Options::=--force-confold postgresql
	if found; then exit 0; fi
fi
echo "PostgreSQL 15 or later was not found: install it (Debian: apt-get install postgresql) or add its bin folder to PATH" >&2
exit 1
