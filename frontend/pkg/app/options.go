// Package app wires the frontend: its flags, its dependencies and its goroutines.
package app

import (
	"cmp"
	"context"
	"flag"
	"regexp"

	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Options holds the frontend's flags.
type Options struct {
	Database       database.Options
	Tracing        tracing.Options
	Authentication authn.Options
	Audit          writer.Options
	Notifications  asyncoperation.Policy
	// Listen is the host:port of the API.
	Listen string
	// Mesh selects how the process and its callers authenticate to each other.
	Mesh mesh.Options
	// ClusterServiceAddress is the host:port of Cluster Service.
	ClusterServiceAddress string
	// Location is the Azure region of this frontend, for example westus3.
	Location string
	// SkipTokenKeyFile is the keyset that seals skip tokens. Without it the process generates a key.
	SkipTokenKeyFile string
	// CredentialKeyFile is the keyset that seals the private keys of admin credentials until clients read them. Without it
	// the process generates a key.
	CredentialKeyFile string
	// ClustersPerSubscription is the quota of subscriptions for which no engineer has set another one.
	ClustersPerSubscription int
	// AllowLoopbackIssuers permits token issuers on this machine.
	AllowLoopbackIssuers bool
	// ConfigFile is the configuration of the region's catalogue; empty means the built-in one.
	ConfigFile string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	o.Tracing.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Audit.AddFlags(flags)
	o.Notifications.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8443", "`address` (host:port) of the ARM resource provider API, which uses mutual TLS unless --sidecar-identity is set")
	o.Mesh.AddFlags(flags)
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service")
	flags.StringVar(&o.Location, "location", "", "Azure `region` to serve, for example westus3")
	flags.StringVar(&o.SkipTokenKeyFile, "skip-token-key-file", "",
		"`file` with the Tink keyset that seals skip tokens; if empty, the process generates a key that no other replica has")
	flags.StringVar(&o.CredentialKeyFile, "credential-key-file", "",
		"`file` with the Tink keyset that seals private keys of admin credentials; if empty, the process generates a key that no other replica has")
	flags.IntVar(&o.ClustersPerSubscription, "clusters-per-subscription", 100,
		"`number` of clusters that a subscription may have in the region, unless an engineer has set another quota for it")
	flags.BoolVar(&o.AllowLoopbackIssuers, "allow-loopback-issuers", false, "also accept external authentications with an issuer at 127.0.0.1, at any port; for local regions only")
	flags.StringVar(&o.ConfigFile, "config", "", "YAML `file` with the versions, VM sizes and zones that the region offers; if empty, the built-in configuration")
}

var regionName = regexp.MustCompile(`^[a-z0-9-]+$`)

// Validate returns an error for the first missing or invalid flag.
func (o *Options) Validate() error {
	return cmp.Or(
		process.Required("listen", o.Listen),
		process.Required("cluster-service-address", o.ClusterServiceAddress),
		process.ErrorIf(!regionName.MatchString(o.Location), "--location: a region consists of lower-case letters, digits and '-', for example westus3"),
		process.Between("clusters-per-subscription", o.ClustersPerSubscription, 0, database.MaxClusterQuota),
		o.Mesh.Validate(), o.Authentication.Validate(), o.Audit.Validate(), o.Tracing.Validate(), o.Database.Validate(),
	)
}

// Main is the program frontend. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("frontend", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}
