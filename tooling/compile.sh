compile_folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.build" # of the durations of builds

# compile NAME ARGUMENT... runs `go build ARGUMENT...`, of which those that begin with - are flags and the others packages. While it compiles
# more than a few packages, it reports to standard error how many are left at most, and how long the last such build took. Scripts
# source this file.
compile() {
	go build -v "${@:2}" 2>&1 >/dev/null | compile_progress "$compile_folder/took-${1// /-}" "$@"
}

# compile_progress FILE NAME ARGUMENT... reads the output of go build -v: the names of packages, and errors, which it prints. It writes the
# duration of the build in seconds to FILE.
compile_progress() {
	local took=$1 name=$2 packages=() argument line compiled=0 total=0 begun=$SECONDS
	for argument in "${@:3}"; do [[ $argument == -* ]] || packages+=("$argument"); done
	while IFS= read -r line; do
		if [[ $line == *[\ :#]* ]]; then
			echo "$line" >&2
			continue
		fi
		compiled=$((compiled + 1))
		if [ $compiled = 25 ]; then
			total=$(go list -deps "${packages[@]}" | wc -l)
			echo "building $name: $total packages$([ ! -f "$took" ] || echo "; the last build took $(<"$took") s")" >&2
		elif [ $compiled -gt 25 ] && [ -t 2 ]; then
			printf '\r  %s: at most %d packages left   ' "$name" $((total - compiled)) >&2
		elif [ $((compiled % 250)) = 0 ]; then
			echo "  $name: at most $((total - compiled)) packages left" >&2
		fi
	done
	[ $compiled -ge 25 ] || return 0
	[ ! -t 2 ] || echo >&2
	mkdir -p "$(dirname "$took")"
	echo $((SECONDS - begun)) >"$took"
}
