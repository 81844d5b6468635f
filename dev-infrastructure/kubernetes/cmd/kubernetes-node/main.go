// Command kubernetes-node runs the nodes and the control plane of a Kubernetes cluster on this machine, in namespaces of their own.
// Package kubernetes starts it.
package main

import (
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes/machine"
)

func main() {
	if err := machine.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes-node:", err)
		os.Exit(1)
	}
}
