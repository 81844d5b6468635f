#!/usr/bin/env bash
# Sees to it that there is a PostgreSQL server to run: silent when one is found, installed where that can be done without
# asking, else one sentence that says what to do. Nothing is started; regions and tests run servers of their own.
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
	# The distribution would make a database cluster and start it; nobody needs that one.
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq >&2
	apt-get install -y -qq -o Dpkg::Options::=--force-confold postgresql >&2
	if found; then exit 0; fi
fi
echo "PostgreSQL 15 or later was not found; install it (Debian: apt-get install postgresql) or put its bin folder on PATH" >&2
exit 1
