#!/usr/bin/env bash
# count.sh prints the size of the repository: raw lines of Go without tests and generated code, of Go tests and of API cases, and the numbers
# of Go packages and modules. It also prints the lines of each folder, and the imports between folders that do not go to a lower layer.
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

printf '\nLines of Go by folder, without tests and generated code:\n'
code | xargs -r wc -l | awk '$2 != "total" { split($2, path, "/"); lines[path[1]] += $1; all += $1 }
	END { for (folder in lines) printf "%8d %3.0f %% %s\n", lines[folder], 100 * lines[folder] / all, folder }' | sort -rn

# The layers are api, internal, tooling, the services, dev-infrastructure and test. A folder should import lower layers only.
printf '\nImports of a folder of the same layer or of a higher one, outside of tests:\n'
git grep -oE '"github.com/hcpmesh/hcpmesh/[a-z-]+/' -- '*.go' ':!*_test.go' | awk -F: '
	BEGIN { split("api internal tooling SERVICES dev-infrastructure test", layers, " "); for (i in layers) layer[layers[i]] = i }
	function of(folder) { return folder in layer ? layer[folder] : 4 }
	{ split($1, from, "/"); split($2, to, "/") }
	from[1] != to[4] && of(from[1]) <= of(to[4]) { found[from[1] " imports " to[4]]++ }
	END { for (pair in found) printf "%8d %s\n", found[pair], pair }'
