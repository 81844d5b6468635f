// Pins the modules whose CustomResourceDefinitions build.sh copies. Nothing of them is compiled, so this module has no Go
// code and is never tidied.
module github.com/hcpmesh/hcpmesh/tooling/third-party/crds

go 1.26.0

require (
	github.com/openshift/hypershift v0.1.81
	github.com/prometheus-operator/prometheus-operator v0.85.0
	istio.io/api v1.31.1
	open-cluster-management.io/api v1.2.1-0.20260305152611-5bfebdbc3fdf
	sigs.k8s.io/secrets-store-csi-driver v1.4.8
)
