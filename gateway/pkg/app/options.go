// Package app holds the flags and the wiring of the process gateway-access.
package app

import (
	"context"
	"flag"
	"fmt"
	"net"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options holds the flags of gateway-access.
type Options struct {
	Process        process.Options
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
	o.Process.AddFlags(flags)
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
	for _, required := range []struct{ flag, value string }{{"listen", o.Listen}, {"cluster-service-address", o.ClusterServiceAddress}, {"key-file", o.KeyFile}} {
		if required.value == "" {
			return fmt.Errorf("--%s is required", required.flag)
		}
	}
	if err := o.Mesh.Validate(); err != nil {
		return err
	}
	if o.GrantsURL != "" {
		if err := o.Mesh.CheckURL(o.GrantsURL); err != nil {
			return fmt.Errorf("--grants-url: %w", err)
		}
	}
	if err := o.Authentication.Validate(); err != nil {
		return err
	}
	if o.Authentication.Mode != "token" {
		return fmt.Errorf("--authentication: must be token: the gateway verifies the token of each request itself")
	}
	if err := o.Tunnels.Validate(); err != nil {
		return err
	}
	if err := o.Audit.Validate(); err != nil {
		return err
	}
	if err := o.Recordings.Validate(); err != nil {
		return err
	}
	return o.Database.Validate()
}
