// Package service is admin as a process: its flags, and how its parts are put together and run.
package app

import (
	"flag"
	"fmt"
	"net/url"

	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options are admin's flags.
type Options struct {
	Process        process.Options
	Database       database.Options
	Authentication authn.Options
	// Listen is the address of the API, TLS, as host:port. Callers have tokens and no certificates.
	Listen string
	// IdentityDir holds tls.crt, tls.key and ca.crt.
	IdentityDir string
	// ClusterServiceAddress is host:port of Cluster Service, MaestroURL the URL of Maestro's REST API.
	ClusterServiceAddress string
	MaestroURL            string
	// RolesFile says which groups have which roles.
	RolesFile string
	// Environment is the one that Cluster Service has, part of the names of namespaces.
	Environment string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Process.AddFlags(flags)
	o.Database.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8444", "`address` of the API, TLS")
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt, the process's identity")
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service")
	flags.StringVar(&o.MaestroURL, "maestro-url", "", "`URL` of Maestro's REST API, as in https://maestro:8000")
	flags.StringVar(&o.RolesFile, "roles-file", "", "YAML `file` that says which groups have which roles")
	flags.StringVar(&o.Environment, "environment", "local", "name of the environment, as Cluster Service has it")
}

// Validate names the first flag that is missing or wrong.
func (o *Options) Validate() error {
	for _, required := range []struct{ flag, value string }{
		{"listen", o.Listen},
		{"identity-dir", o.IdentityDir},
		{"cluster-service-address", o.ClusterServiceAddress},
		{"maestro-url", o.MaestroURL},
		{"roles-file", o.RolesFile},
		{"environment", o.Environment},
	} {
		if required.value == "" {
			return fmt.Errorf("--%s is required", required.flag)
		}
	}
	if u, err := url.Parse(o.MaestroURL); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--maestro-url: %q is not an https URL", o.MaestroURL)
	}
	if err := o.Authentication.Validate(); err != nil {
		return err
	}
	if o.Authentication.Mode == "off" {
		return fmt.Errorf("--authentication: off is not for this API: who does something is written down")
	}
	return o.Database.Validate()
}
