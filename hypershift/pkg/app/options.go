// Package app assembles the local HyperShift runtime. It installs the CustomResourceDefinitions and starts the
// controllers of hosted clusters, node pools and break-glass credentials. In process fidelity it also starts the
// supervisor of hosted API servers and the manager of their nodes. Everything that it starts has stopped when Run
// returns.
package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"regexp"
	"strings"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options configures the runtime.
type Options struct {
	// Kubeconfig is the kubeconfig file of the management cluster; empty for the service account of the pod.
	Kubeconfig string
	// CRDDir is the folder of the published CustomResourceDefinitions; empty if they are already installed.
	CRDDir string
	// ReleaseCatalog is a file of releases; empty for the built-in catalogue.
	ReleaseCatalog string
	// Fidelity is "process" or "status".
	Fidelity string
	// TimeScale is a factor on the observed durations; 0 is as fast as possible.
	TimeScale float64
	// APIServer, EtcdServers and EtcdAuthority are required for process fidelity.
	APIServer   string
	EtcdServers string
	// EtcdAuthority is the folder of the authority of etcd's users.
	EtcdAuthority string
	// APIServerImage and EtcdImage are the images of hosted control planes that run as pods, in place of processes; both or none.
	APIServerImage, EtcdImage string
	// EgressProxy is the https URL of the egress proxy, and EgressAuthority the folder of the authority of its clients; both empty if hosted
	// API servers connect to token issuers directly.
	EgressProxy, EgressAuthority string
	// StateDir is the folder of the certificates, ports and logs of hosted API servers.
	StateDir string
	// Ports is the port range of hosted API servers.
	Ports hostedapi.PortRange
	// Probes are the settings of the probes of hosted API servers; hostedapi.DefaultProbes if it is zero. It is not a flag.
	Probes hostedapi.Probes
	// ConcurrentStarts bounds the number of hosted API servers that start at the same time.
	ConcurrentStarts int
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Ports = hostedapi.DefaultPortRange
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster; empty uses the service account of the pod")
	flags.StringVar(&o.CRDDir, "crd-dir", "", "`folder` of HyperShift's CustomResourceDefinitions to install at start; empty installs none")
	flags.StringVar(&o.ReleaseCatalog, "release-catalog", "", "YAML `file` of the available releases; empty uses the built-in catalogue")
	flags.StringVar(&o.Fidelity, "fidelity", string(contract.FidelityProcess), "`process` runs a real API server per hosted cluster, status only writes status")
	flags.Float64Var(&o.TimeScale, "time-scale", 0, "`factor` on the durations observed on real management clusters; 0 is as fast as possible")
	flags.StringVar(&o.APIServer, "kube-apiserver", "", "`path` of the kube-apiserver program of hosted control planes")
	flags.StringVar(&o.EtcdServers, "etcd-servers", "", "client `URLs` of the etcd that hosted control planes share, each with its own key prefix")
	flags.StringVar(&o.EtcdAuthority, "etcd-authority-dir", "", "`folder` of the authority (ca.crt, ca.key) that issues the certificates of etcd's users, for this process and for hosted API servers")
	flags.StringVar(&o.APIServerImage, "kube-apiserver-image", "", "`image` of kube-apiserver, by digest; with it, hosted control planes are pods of the management cluster")
	flags.StringVar(&o.EtcdImage, "etcd-image", "", "`image` of etcd, by digest, for hosted control planes that are pods")
	flags.StringVar(&o.EgressProxy, "egress-proxy", "", "https `URL` of the proxy through which hosted API servers connect to token issuers; empty connects directly")
	flags.StringVar(&o.EgressAuthority, "egress-authority-dir", "", "`folder` of the authority (ca.crt, ca.key) that issues the certificates of control planes for --egress-proxy")
	flags.StringVar(&o.StateDir, "state-dir", "", "`folder` for the certificates, ports and logs of hosted API servers")
	flags.Var(&o.Ports, "hosted-ports", "`range` of loopback ports for hosted API servers")
	flags.IntVar(&o.ConcurrentStarts, "concurrent-starts", 2, "`number` of hosted API servers that may start at the same time")
}

// Validate checks the options. An error names the invalid flag.
func (o *Options) Validate() error {
	fidelity, err := contract.ParseFidelity(o.Fidelity)
	if err := cmp.Or(
		process.Named("fidelity", err),
		process.Between("time-scale", o.TimeScale, 0, 100),
		process.AtLeast("concurrent-starts", o.ConcurrentStarts, 1),
		process.ErrorIf((o.EgressProxy == "") != (o.EgressAuthority == ""), "--egress-proxy and --egress-authority-dir are required together"),
		process.ErrorIf(o.EgressProxy != "" && !strings.HasPrefix(o.EgressProxy, "https://"), "--egress-proxy: %q is not an https URL", o.EgressProxy),
	); err != nil {
		return err
	}
	if done, err := o.validatePods(); done || err != nil {
		return err
	}
	given := 0
	for _, value := range []string{o.APIServer, o.EtcdServers, o.EtcdAuthority, o.StateDir} {
		if value != "" {
			given++
		}
	}
	return process.ErrorIf(given != 4 && (given != 0 || fidelity == contract.FidelityProcess),
		"--kube-apiserver, --etcd-servers, --etcd-authority-dir and --state-dir are required together for process fidelity")
}

// Main is the program hypershift-runtime. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("hypershift-runtime", &options, func(ctx context.Context, p *process.Process) error {
		runtime := New(options, p.Log)
		runtime.Register(p.Metrics)
		p.Ready("management cluster", runtime.Ready)
		return runtime.Run(ctx)
	})
}

// byDigest is the format of the images of pods.
var byDigest = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

// validatePods checks the flags of control planes that are pods. done is true if there are such flags.
func (o *Options) validatePods() (done bool, err error) {
	if o.APIServerImage == "" && o.EtcdImage == "" {
		return false, nil
	}
	for flag, image := range map[string]string{"--kube-apiserver-image": o.APIServerImage, "--etcd-image": o.EtcdImage} {
		if !byDigest.MatchString(image) {
			return true, fmt.Errorf("%s: %q does not name an image by its digest; --kube-apiserver-image and --etcd-image are required together", flag, image)
		}
	}
	for flag, value := range map[string]string{"--kube-apiserver": o.APIServer, "--etcd-servers": o.EtcdServers, "--etcd-authority-dir": o.EtcdAuthority, "--state-dir": o.StateDir,
		"--egress-proxy": o.EgressProxy} {
		if value != "" {
			return true, fmt.Errorf("%s is for control planes that are processes, and --kube-apiserver-image makes them pods", flag)
		}
	}
	return true, nil
}

// egress returns the proxy of hosted API servers; nil if there is none.
func (o *Options) egress() *hostedapi.Egress {
	if o.EgressProxy == "" {
		return nil
	}
	return &hostedapi.Egress{URL: o.EgressProxy, AuthorityDir: o.EgressAuthority}
}

// canRunProcesses reports whether the runtime can run hosted API servers as processes, and runsPods whether it runs them as pods.
func (o *Options) canRunProcesses() bool { return o.APIServer != "" }
func (o *Options) runsPods() bool        { return o.APIServerImage != "" }
