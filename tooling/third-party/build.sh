#!/usr/bin/env bash
# Builds the third-party programs of the local region from their published sources, and copies the CustomResourceDefinitions
# that a management cluster needs. Each module is built at most once for its pins. Prints nothing if everything exists.
#
#   build.sh            kube-apiserver, etcd, management-controllers and CustomResourceDefinitions: what a region runs
#   build.sh kubectl    also kubectl, for tests and people
#   build.sh controllers
#                       also kube-controller-manager with all controllers, for tests of charts
#   build.sh node       also what Kubernetes nodes and their clusters run: all controllers, kubelet, kube-proxy, kube-scheduler,
#                       containerd, the CNI plugins and CoreDNS
#   build.sh maestro    also the published Maestro, with which ours is compared
#   build.sh hypershift also the published HyperShift operator, with which our runtime is compared
#   build.sh opentofu   also OpenTofu and its provider for Azure, for the templates of the infrastructure
#   build.sh istio      also Istio's control plane (pilot-discovery) and istioctl, which validate and enforce the policies of the mesh
#   build.sh observability
#                       also Prometheus, promtool, Alertmanager and amtool, which test the alert rules
#
# Where KUBEBUILDER_ASSETS is a folder that has kube-apiserver or etcd at the version of the pins, that program is used and not built.
#
#   .build/third-party/<name>-<key>/     the result for one set of pins; <key> is a hash of go.mod, go.sum and Go's version
#   .build/third-party/bin/              links to the programs of the current pins (KUBEBUILDER_ASSETS of the tests)
#   .build/third-party/crds/             links to the folders of CustomResourceDefinitions of the current pins
#   .build/third-party/opentofu/         links to tofu and to the folder in which it finds its provider
#   .build/third-party/istio/            links to the programs of Istio
#   .build/third-party/observability/    links to the programs of Prometheus and Alertmanager
#
# Programs are compiled with the same flags as ours, and the modules of Kubernetes and etcd require the versions that ours require, so that a
# package is compiled once for all (TestPackagesAreCompiledOnce).
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")"
source ../compile.sh
out="$(cd ../.. && pwd)/.build/third-party"
mkdir -p "$out/bin" "$out/crds"
exec 9>"$out/.lock" && flock 9 # two checkouts or two targets at the same time must not build the same thing twice

export GOGC=${GOGC:-400} # the compiler needs more memory and a quarter less time
goversion=$(go env GOVERSION)

# build NAME MODULE COMMAND... runs COMMAND in the folder of MODULE unless its result exists. COMMAND writes to $dir.
build() {
	local name=$1 module=$2 && shift 2
	local key && key=$({ echo "$goversion $*"; cat "$module"/go.mod "$module"/go.sum "$module"/*/*.go; } | sha256sum | cut -c1-12)
	dir="$out/$name-$key"
	[ -d "$dir" ] && return
	rm -rf "$dir.part" && mkdir -p "$dir.part"
	(
		cd "$module"
		dir="$dir.part"
		"$@"
	)
	mv "$dir.part" "$dir"
}

# link TARGET LINK makes LINK point to TARGET. A link that does so already stays: the go command runs a test again if a link that it read is newer.
link() { [ "$(readlink "$2")" = "$1" ] || ln -sfn "$1" "$2"; }

# links FOLDER makes a link in a folder to each file of the last result.
links() {
	local file
	for file in "$dir"/*; do link "$file" "$1/${file##*/}"; done
}

# version MODULE prints the version of a module, such as v1.35.4.
version() { go list -m -f '{{.Version}}' "$1"; }

# existing PROGRAM VERSION links a program of KUBEBUILDER_ASSETS that reports the version, or fails.
existing() {
	local program=${KUBEBUILDER_ASSETS:-}/$1
	[ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$program" ] && [ ! "$KUBEBUILDER_ASSETS" -ef "$out/bin" ] || return 1
	"$program" --version 2>/dev/null | grep -qw -e "$2" || return 1
	echo "using $1 $2 of KUBEBUILDER_ASSETS" >&2
	ln -s "$(readlink -f "$program")" "$dir/$1"
}

# programs PACKAGE... builds main packages.
programs() { compile "${PWD##*/}" -ldflags='-s -w' -o="$dir/" "$@"; }

# kubernetes PACKAGE... builds programs of Kubernetes, which report the version of their module: charts and kubelet compare it.
kubernetes() {
	local version && version=$(version k8s.io/kubernetes)
	if [ "$1" = $commands/kube-apiserver ] && existing kube-apiserver "$version"; then shift; fi
	compile kubernetes -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" -o="$dir/" "$@"
}

# tools builds the tools of a module.
tools() { programs $(go list tool); }

# coredns builds CoreDNS with the plugins that are tools of the module. The program is for an image without libraries: it is linked
# statically with the C library, so that packages are compiled once for all programs.
coredns() {
	{
		echo 'package main'
		echo 'import "github.com/coredns/coredns/coremain"'
		go list tool | sed 's/.*/import _ "&"/'
		echo 'func main() { coremain.Run() }'
	} >"$dir/main.go"
	compile coredns -ldflags='-s -w -linkmode external -extldflags "-static -Wl,--no-warnings"' -o="$dir/coredns" "$dir/main.go"
	rm "$dir/main.go"
}

# prometheus builds Prometheus and promtool with discovery from files and URLs only: the clients of clouds are half of the program.
prometheus() { compile prometheus -tags=remove_all_sd -ldflags='-s -w' -o="$dir/" $(go list tool); }

# etcd builds etcd, whose main package is the root of its module and would be called v3.
etcd() {
	local version && version=$(version go.etcd.io/etcd/server/v3)
	existing etcd "${version#v}" || compile etcd -ldflags='-s -w' -o="$dir/etcd" go.etcd.io/etcd/server/v3
}

# provider builds the provider azapi in the layout of a mirror of OpenTofu's registry.
provider() {
	local version && version=$(version github.com/Azure/terraform-provider-azapi)
	local into="$dir/providers/registry.opentofu.org/azure/azapi/${version#v}/$(go env GOOS)_$(go env GOARCH)"
	mkdir -p "$into"
	compile azapi -ldflags='-s -w' -o="$into/terraform-provider-azapi_$version" github.com/Azure/terraform-provider-azapi
}

# operator SCRIPT builds the HyperShift operator. It copies the operator and the modules that do not compile with our versions of Kubernetes and
# controller-runtime, and applies SCRIPT, which is for sed, to their sources.
operator() {
	local module copy
	cp go.mod go.sum "$dir/"
	for module in github.com/openshift/{hypershift,cluster-node-tuning-operator} sigs.k8s.io/cluster-api{,-provider-aws/v2,-provider-azure,-provider-gcp}; do
		go mod download "$module"
		copy=$dir/source/$module
		mkdir -p "$(dirname "$copy")"
		cp -R --no-preserve=mode "$(go list -m -f '{{.Dir}}' "$module")" "$copy"
		(cd "$dir" && go mod edit -replace "$module=./source/$module")
	done
	find "$dir/source" -name '*.go' -print0 | xargs -0 sed -i -e "$1"
	cd "$dir"
	compile hypershift -ldflags='-s -w' -o=. github.com/openshift/hypershift/hypershift-operator
	rm -r go.mod go.sum source
}

# definitions MODULE FOLDER copies the YAML files below a folder of a module, with the folders that they are in.
definitions() {
	go mod download "$1" # a module that is not downloaded has no folder
	local source && source=$(go list -m -f '{{.Dir}}' "$1")/$2
	(cd "$source" && find . -name '*.yaml') | while read -r file; do
		mkdir -p "$dir/$(dirname "$file")"
		cp "$source/$file" "$dir/$file" && chmod u+w "$dir/$file"
	done
}

commands=k8s.io/kubernetes/cmd
# Each on a line of its own: in a list of && the shell would continue after a failure inside build.
build kubernetes kubernetes kubernetes $commands/kube-apiserver ./management-controllers
links "$out/bin"
build etcd etcd etcd
links "$out/bin"
build hypershift-crds crds definitions github.com/openshift/hypershift cmd/install/assets/crds
link "$dir" "$out/crds/hypershift"
build work-crds crds definitions open-cluster-management.io/api work/v1
link "$dir" "$out/crds/work"
for extra in "$@"; do
	case $extra in
	kubectl) build kubectl kubernetes kubernetes $commands/kubectl ;;
	controllers) build kube-controller-manager kubernetes kubernetes $commands/kube-controller-manager ;;
	node)
		build kubernetes-node kubernetes kubernetes $commands/kube-scheduler $commands/kubelet $commands/kube-proxy
		links "$out/bin"
		build kube-controller-manager kubernetes kubernetes $commands/kube-controller-manager
		links "$out/bin"
		build containerd containerd tools
		links "$out/bin"
		build coredns coredns coredns
		links "$out/bin"
		build cni-plugins cni-plugins tools
		;;
	maestro) build maestro maestro programs github.com/openshift-online/maestro/cmd/maestro ;;
	hypershift) build hypershift hypershift operator "$(<hypershift/sources.sed)" ;;
	opentofu)
		mkdir -p "$out/opentofu"
		build opentofu opentofu programs github.com/opentofu/opentofu/cmd/tofu
		links "$out/opentofu"
		build azapi azapi provider
		links "$out/opentofu"
		continue
		;;
	istio)
		mkdir -p "$out/istio"
		build istio istio tools
		links "$out/istio"
		continue
		;;
	observability)
		mkdir -p "$out/observability"
		build prometheus prometheus prometheus
		links "$out/observability"
		build alertmanager alertmanager tools
		links "$out/observability"
		continue
		;;
	*) echo "build.sh: unknown program $extra; it builds controllers, hypershift, istio, kubectl, maestro, node, observability and opentofu on request" >&2 && exit 2 ;;
	esac
	links "$out/bin"
done
