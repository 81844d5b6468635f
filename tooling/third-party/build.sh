#!/usr/bin/env bash
# Builds the third-party programs of the local region, each at most once for its pins, and prints nothing when all are there.
# With the word `maestro` also the published Maestro, which no region needs: ours is compared with it.
#
# They are built as they are published, but for one constant (kubernetes/namespaces.sed).
#
#   .build/third-party/<module>-<key>/   what a module's pins built to; <key> is a hash of go.mod, go.sum, sources and Go's version
#   .build/third-party/bin/              links to the programs of the current pins (what tests know as KUBEBUILDER_ASSETS)
#   .build/third-party/crds/             links to the folders of CustomResourceDefinitions of the current pins
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")"
out="$(cd ../.. && pwd)/.build/third-party"
mkdir -p "$out/bin" "$out/crds"
exec 9>"$out/.lock" && flock 9 # two checkouts or two targets at once must not build the same thing twice

export GOWORK=off CGO_ENABLED=0
goversion=$(go env GOVERSION)

# built MODULE runs the rest of its words inside the module's folder with $dir set, unless its key is already built.
built() {
	local module=$1 && shift
	local key && key=$({ echo "$goversion $*"; cat "$module"/go.mod "$module"/go.sum "$module"/*.go "$module"/*.sed; } | sha256sum | cut -c1-12)
	dir="$out/$module-$key"
	[ -d "$dir" ] && return
	echo "building $module (once for these pins; the first time takes minutes)" >&2
	rm -rf "$dir.part" && mkdir -p "$dir.part"
	(
		cd "$module"
		dir="$dir.part"
		"$@"
	)
	mv "$dir.part" "$dir"
}

programs() { go build -trimpath -ldflags='-s -w' -o "$dir/" "$@"; }
kubernetes() {
	go mod download k8s.io/kubernetes # a module that is not downloaded has no folder
	local source="$dir.source" file=pkg/controller/namespace/namespace_controller.go
	cp -r "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" "$source" && chmod -R u+w "$source"
	cp "$source/$file" "$source.published"
	sed -i -f namespaces.sed "$source/$file"
	if cmp -s "$source.published" "$source/$file"; then
		echo "kubernetes/namespaces.sed changes nothing of $file any more" >&2 && exit 1
	fi
	cp go.mod "$source.mod" && cp go.sum "$source.sum"
	go mod edit -replace "k8s.io/kubernetes=$source" "$source.mod"
	programs -modfile="$source.mod" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kubectl}
	rm -r "$source" "$source".*
}
etcd() { go build -trimpath -ldflags='-s -w' -o "$dir/etcd" go.etcd.io/etcd/server/v3; }
hypershift_crds() { go run . -out "$dir"; }
maestro() { programs github.com/openshift-online/maestro/cmd/maestro; }
work_crds() {
	go mod download open-cluster-management.io/api # a module that is not downloaded has no folder
	cp "$(go list -m -f '{{.Dir}}' open-cluster-management.io/api)"/work/v1/*.crd.yaml "$dir/"
	chmod u+w "$dir"/*
}

# Each on a line of its own: in a list of && the shell would go on after a failure inside built.
built kubernetes kubernetes
ln -sfn "$dir"/* "$out/bin/"
built etcd etcd
ln -sfn "$dir"/* "$out/bin/"
built hypershift-crds hypershift_crds
ln -sfn "$dir" "$out/crds/hypershift"
built work-crds work_crds
ln -sfn "$dir" "$out/crds/work"
if [ "${1:-}" = maestro ]; then
	built maestro maestro
	ln -sfn "$dir"/* "$out/bin/"
fi
