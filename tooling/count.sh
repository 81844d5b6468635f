#!/usr/bin/env bash
# count.sh prints the size of the repository: raw lines of Go without tests and generated code, of Go tests and of API cases, and the numbers
# of Go packages and modules. It also prints the lines of each folder.
set -euo pipefail
cd "$(dirname "$0")/.."

lines() { xargs -r cat | wc -l; }
code() { git ls-files '*.go' "$@" | grep -v '_test\.go$' | xargs -r grep -L -m1 '^// Code generated .* DO NOT EDIT\.$'; }

printf '%8d lines of Go, without tests and generated code\n' "$(code | lines)"
printf '%8d lines of them in the services and internal\n' "$(code ':!tooling' ':!test' ':!dev-infrastructure' | lines)"
printf '%8d lines of Go tests\n' "$(git ls-files '*_test.go' | lines)"
printf '%8d lines of API cases\n' "$(git ls-files '*.http' '*.table' | lines)"
printf '%8d packages\n' "$(git ls-files '*.go' | xargs -n1 dirname | sort -u | wc -l)"
printf '%8d modules\n' "$(git ls-files '*go.mod' | wc -l)"

# hcpctl is a layer of its own, above the rest of tooling.
printf '\nLines of Go by folder, without tests and generated code:\n'
code | xargs -r wc -l | awk '$2 != "total" { split($2, path, "/"); name = path[1]; if ($2 ~ "^tooling/hcpctl/") name = "tooling/hcpctl"
		lines[name] += $1; all += $1 }
	END { for (folder in lines) printf "%8d %3.0f %% %s\n", lines[folder], 100 * lines[folder] / all, folder }' | sort -rn
