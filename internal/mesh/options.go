package mesh

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
)

// Options are the flags that select the Transport of a program: certificates of its own, or a sidecar of Istio. A program has exactly one.
type Options struct {
	// IdentityDir is the folder of the program's certificate.
	IdentityDir string
	// SidecarIdentity is the SPIFFE ID of the program's sidecar, and SidecarGateways those of its ingress gateways, separated by commas; see NewSidecar.
	SidecarIdentity, SidecarGateways string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt, the identity of the program")
	flags.StringVar(&o.SidecarIdentity, "sidecar-identity", "", "`SPIFFE ID` of the program, in place of --identity-dir, if a sidecar of Istio authenticates all connections between programs")
	flags.StringVar(&o.SidecarGateways, "sidecar-gateways", "", "comma-separated `SPIFFE IDs` of the ingress gateways of the program, with --sidecar-identity: their requests are those of ARM, of engineers or of management clusters")
}

// Validate returns an error that names the missing flag, or the flags that exclude each other.
func (o *Options) Validate() error {
	switch {
	case o.IdentityDir == "" && o.SidecarIdentity == "":
		return errors.New("--identity-dir is required, or --sidecar-identity behind a sidecar")
	case o.IdentityDir != "" && o.SidecarIdentity != "":
		return errors.New("--identity-dir and --sidecar-identity: set one of them: either the program or its sidecar authenticates connections")
	case o.IdentityDir != "" && o.SidecarGateways != "":
		return errors.New("--sidecar-gateways: --identity-dir is set, so that no sidecar authenticates the gateways")
	}
	return nil
}

// CheckURL returns an error unless a URL has a host and the scheme of the transport: a sidecar accepts plain requests, and all others need
// TLS. The error does not name a flag.
func (o *Options) CheckURL(text string) error {
	scheme := "https"
	if o.SidecarIdentity != "" {
		scheme = "http"
	}
	parsed, err := url.Parse(text)
	switch {
	case err == nil && parsed.Scheme == scheme && parsed.Host != "":
		return nil
	case o.SidecarIdentity != "":
		return fmt.Errorf("%q is not an http URL, which --sidecar-identity requires", text)
	}
	return fmt.Errorf("%q is not an https URL", text)
}

// Load returns the transport of a program. An error names the flag.
func (o *Options) Load(program Peer) (Transport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.SidecarIdentity == "" {
		identity, err := LoadIdentity(o.IdentityDir)
		if err != nil {
			return nil, fmt.Errorf("--identity-dir: %w", err)
		}
		return identity, nil
	}
	own, err := exactID(o.SidecarIdentity)
	if err != nil {
		return nil, fmt.Errorf("--sidecar-identity: %w", err)
	}
	if own.Peer != program {
		return nil, fmt.Errorf("--sidecar-identity: %q is not the identity of %s", o.SidecarIdentity, program)
	}
	var gateways []string
	if o.SidecarGateways != "" {
		gateways = strings.Split(o.SidecarGateways, ",")
	}
	sidecar, err := NewSidecar(o.SidecarIdentity, gateways...)
	if err != nil {
		return nil, fmt.Errorf("--sidecar-gateways: %w", err)
	}
	return sidecar, nil
}
