// Package app holds the flags and the wiring of the process gateway-access.
package app

import (
	"cmp"
	"context"
	"flag"
	"net"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options holds the flags of gateway-access.
type Options struct {
	Database       database.Options
	Authentication authn.Options
	Audit          writer.Options
	Recordings     recorder.Flags
	Mesh           mesh.Options
	Tunnels        TunnelFlags
	// Listen is the address of the gateway, host:port. Callers authenticate with tokens and not with certificates.
	Listen string
	// ClusterServiceAddress is host:port of Cluster Service.
	ClusterServiceAddress string
	// GrantsURL is the URL at which gateway-grants issues tokens for the service cluster; empty means that there are no sessions with it.
	GrantsURL string
	// KeyFile holds the private Tink keyset that opens the private keys of sessions.
	KeyFile string

	// dial connects to API servers; nil means a direct connection.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Audit.AddFlags(flags)
	o.Recordings.AddFlags(flags)
	o.Mesh.AddFlags(flags)
	o.Tunnels.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8446", "`address` of the gateway, which uses TLS unless --sidecar-identity is set")
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service")
	flags.StringVar(&o.GrantsURL, "grants-url", "", "`URL` at which gateway-grants issues tokens of access sessions with the service cluster; without it, there are no such sessions")
	flags.StringVar(&o.KeyFile, "key-file", "", "`file` with the private Tink keyset that opens the private keys of access sessions; it may be replaced at any time")
}

// Validate returns an error for the first missing or invalid flag.
func (o *Options) Validate() error {
	var grants error
	if o.GrantsURL != "" {
		grants = o.Mesh.CheckURL(o.GrantsURL)
	}
	return cmp.Or(
		process.Required("listen", o.Listen),
		process.Required("cluster-service-address", o.ClusterServiceAddress),
		process.Required("key-file", o.KeyFile),
		o.Mesh.Validate(), process.Named("grants-url", grants), o.Authentication.Validate(),
		process.ErrorIf(o.Authentication.Mode != "token", "--authentication: must be token: the gateway verifies the token of each request itself"),
		o.Tunnels.Validate(), o.Audit.Validate(), o.Recordings.Validate(), o.Database.Validate(),
	)
}

// Main is the program gateway-access. It reads the arguments of the process.
func Main() {
	var options Options
	// Libraries of Kubernetes would log the queries of requests that they cannot parse.
	klog.SetLogger(logr.Discard())
	process.Main("gateway-access", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}
