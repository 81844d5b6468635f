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

# hcpctl is a layer of its own: it starts and asks whole regions, and stands in tooling, where users of ARO HCP look for it.
folder='function folder(path, parts) { split(path, parts, "/"); return parts[1] "/" parts[2] == "tooling/hcpctl" ? "tooling/hcpctl" : parts[1] }'

printf '\nLines of Go by folder, without tests and generated code:\n'
code | xargs -r wc -l | awk "$folder"' $2 != "total" { lines[folder($2)] += $1; all += $1 }
	END { for (name in lines) printf "%8d %3.0f %% %s\n", lines[name], 100 * lines[name] / all, name }' | sort -rn

# The layers are api, internal, tooling, the services, dev-infrastructure, hcpctl and test. A folder should import lower layers only.
printf '\nImports of a folder of the same layer or of a higher one, outside of tests:\n'
git grep -oE '"github.com/hcpmesh/hcpmesh/[a-z/-]+' -- '*.go' ':!*_test.go' | sed 's|:"github.com/hcpmesh/hcpmesh/|:|' | awk -F: "$folder"'
	BEGIN { split("api internal tooling SERVICES dev-infrastructure tooling/hcpctl test", layers, " "); for (i in layers) layer[layers[i]] = i }
	function of(name) { return name in layer ? layer[name] : 4 }
	{ from = folder($1); to = folder($2) }
	from != to && of(from) <= of(to) { found[from " imports " to]++ }
	END { for (pair in found) printf "%8d %s\n", found[pair], pair; if (length(found) == 0) print "    none" }'
