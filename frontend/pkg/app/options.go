// Package app is the frontend as a process: its flags, and how its parts are put together and run.
package app

import (
	"errors"
	"flag"
	"fmt"

	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Options are the frontend's flags.
type Options struct {
	Process        process.Options
	Database       database.Options
	Tracing        tracing.Options
	Authentication authn.Options
	Notifications  asyncoperation.Policy
	// Listen is the address of the API, mutual TLS, as host:port.
	Listen string
	// IdentityDir holds tls.crt, tls.key and ca.crt.
	IdentityDir string
	// ClusterServiceAddress is host:port of Cluster Service.
	ClusterServiceAddress string
	// Location is the Azure region that is served, as in westus3.
	Location string
	// SkipTokenKeyFile is the keyset that seals skip tokens. Without it a new key is used until the process ends.
	SkipTokenKeyFile string
	// CredentialKeyFile is the keyset that seals the private keys of admin credentials until clients read them. Without it a
	// new key is used until the process ends.
	CredentialKeyFile string
	// ConfigFile holds the region's offer; empty takes the one that is built in.
	ConfigFile string
	// ReleaseCatalog holds the releases of the region; empty takes the one that is built in.
	ReleaseCatalog string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Process.AddFlags(flags)
	o.Database.AddFlags(flags)
	o.Tracing.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Notifications.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8443", "`address` of the ARM resource provider API, mutual TLS")
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt, the process's identity")
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service")
	flags.StringVar(&o.Location, "location", "", "Azure `region` that is served, as in westus3")
	flags.StringVar(&o.SkipTokenKeyFile, "skip-token-key-file", "",
		"`file` with the Tink keyset that seals skip tokens; without it a new key is used until the process ends")
	flags.StringVar(&o.CredentialKeyFile, "credential-key-file", "",
		"`file` with the Tink keyset that seals private keys of admin credentials; without it a new key is used until the process ends")
	flags.StringVar(&o.ConfigFile, "config", "", "YAML `file` with the versions, VM sizes and zones that are offered; empty takes the one that is built in")
	flags.StringVar(&o.ReleaseCatalog, "release-catalog", "", "YAML `file` of the region's releases; empty takes the catalogue that is built in")
}

// Validate names the first flag that is missing or wrong.
func (o *Options) Validate() error {
	for _, required := range []struct{ flag, value string }{
		{"listen", o.Listen},
		{"identity-dir", o.IdentityDir},
		{"cluster-service-address", o.ClusterServiceAddress},
		{"location", o.Location},
	} {
		if required.value == "" {
			return fmt.Errorf("--%s is required", required.flag)
		}
	}
	for i := range len(o.Location) {
		if c := o.Location[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return errors.New("--location: a region is written in lower-case letters and digits, as in westus3")
		}
	}
	if err := o.Authentication.Validate(); err != nil {
		return err
	}
	if err := o.Tracing.Validate(); err != nil {
		return err
	}
	return o.Database.Validate()
}
