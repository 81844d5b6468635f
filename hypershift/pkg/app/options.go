// Package app puts the local HyperShift runtime together: it installs the CustomResourceDefinitions, starts
// the controllers for hosted clusters and node pools and, in process fidelity, the supervisor of hosted API servers and
// the keeper of their nodes. Everything it starts has ended when Run returns.
package app

import (
	"errors"
	"flag"
	"fmt"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedcluster"
)

// Options configure the runtime.
type Options struct {
	// Kubeconfig is the file that says how to reach the management cluster.
	Kubeconfig string
	// CRDDir holds the published CustomResourceDefinitions; empty if they are installed already.
	CRDDir string
	// ReleaseCatalog is a file of releases; empty for the one that is built in.
	ReleaseCatalog string
	// Fidelity is "process" or "status".
	Fidelity string
	// TimeScale multiplies the observed durations; 0 is as fast as it goes.
	TimeScale float64
	// APIServer and EtcdServers are needed for process fidelity.
	APIServer   string
	EtcdServers string
	// StateDir keeps certificates, ports and logs of hosted API servers.
	StateDir string
	// Ports is where hosted API servers listen.
	Ports hostedapi.PortRange
	// ConcurrentStarts bounds how many hosted API servers start at once.
	ConcurrentStarts int
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Ports = hostedapi.DefaultPortRange
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the management cluster")
	flags.StringVar(&o.CRDDir, "crd-dir", "", "`folder` with HyperShift's CustomResourceDefinitions to install first; empty installs none")
	flags.StringVar(&o.ReleaseCatalog, "release-catalog", "", "YAML `file` of the releases that can be installed; empty uses the built-in ones")
	flags.StringVar(&o.Fidelity, "fidelity", string(hostedcluster.FidelityProcess), "`process` runs a real API server per hosted cluster, status only reports")
	flags.Float64Var(&o.TimeScale, "time-scale", 0, "`factor` on the durations observed on real management clusters; 0 is as fast as it goes")
	flags.StringVar(&o.APIServer, "kube-apiserver", "", "`path` of the kube-apiserver program for hosted control planes")
	flags.StringVar(&o.EtcdServers, "etcd-servers", "", "client `URLs` of the etcd that hosted control planes share, each below a prefix of its own")
	flags.StringVar(&o.StateDir, "state-dir", "", "`folder` for the certificates, ports and logs of hosted API servers")
	flags.Var(&o.Ports, "hosted-ports", "`range` of loopback ports for hosted API servers")
	flags.IntVar(&o.ConcurrentStarts, "concurrent-starts", 2, "`number` of hosted API servers that may be starting at once")
}

// Validate checks the options and names the flag that is wrong.
func (o *Options) Validate() error {
	if o.Kubeconfig == "" {
		return errors.New("--kubeconfig is required")
	}
	fidelity, err := hostedcluster.ParseFidelity(o.Fidelity)
	if err != nil {
		return fmt.Errorf("--fidelity: %w", err)
	}
	if o.TimeScale < 0 || o.TimeScale > 100 {
		return fmt.Errorf("--time-scale: %v is not between 0 and 100", o.TimeScale)
	}
	if o.ConcurrentStarts < 1 {
		return fmt.Errorf("--concurrent-starts: %d is less than 1", o.ConcurrentStarts)
	}
	given := 0
	for _, value := range []string{o.APIServer, o.EtcdServers, o.StateDir} {
		if value != "" {
			given++
		}
	}
	if given != 3 && (given != 0 || fidelity == hostedcluster.FidelityProcess) {
		return errors.New("--kube-apiserver, --etcd-servers and --state-dir are needed together for process fidelity")
	}
	return nil
}

// canRunProcesses reports whether hosted API servers can be run at all.
func (o *Options) canRunProcesses() bool { return o.APIServer != "" }
