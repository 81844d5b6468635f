package mesh_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestProgramHasOneTransport loads the transport of the frontend with different flags. A program with none or with two does not start.
func TestProgramHasOneTransport(t *testing.T) {
	const id, gateway = "spiffe://test/ns/frontend/sa/frontend", "spiffe://test/ns/ingress/sa/gateway"
	dir := meshtest.New(t).Identity(mesh.Frontend).Dir()
	for name, c := range map[string]struct {
		flags []string
		want  string // a part of the error; empty if the flags are valid
	}{
		"certificates":                  {[]string{"--identity-dir=" + dir}, ""},
		"sidecar":                       {[]string{"--sidecar-identity=" + id, "--sidecar-gateways=" + gateway}, ""},
		"sidecar with two gateways":     {[]string{"--sidecar-identity=" + id, "--sidecar-gateways=" + gateway + ",spiffe://test/ns/ingress/sa/other"}, ""},
		"an empty gateway":              {[]string{"--sidecar-identity=" + id, "--sidecar-gateways=" + gateway + ","}, "--sidecar-gateways: "},
		"sidecar without gateway":       {[]string{"--sidecar-identity=" + id}, ""},
		"none":                          {nil, "--identity-dir is required, or --sidecar-identity"},
		"both":                          {[]string{"--identity-dir=" + dir, "--sidecar-identity=" + id}, "--identity-dir and --sidecar-identity: set one"},
		"gateway with certificates":     {[]string{"--identity-dir=" + dir, "--sidecar-gateways=" + gateway}, "--sidecar-gateways"},
		"gateway alone":                 {[]string{"--sidecar-gateways=" + gateway}, "--identity-dir is required"},
		"no folder":                     {[]string{"--identity-dir=" + dir + "/none"}, "--identity-dir: reading the identity"},
		"identity of another program":   {[]string{"--sidecar-identity=spiffe://test/ns/backend/sa/backend"}, "--sidecar-identity: \"spiffe://test/ns/backend/sa/backend\" is not the identity of frontend"},
		"no SPIFFE ID":                  {[]string{"--sidecar-identity=frontend"}, "--sidecar-identity: "},
		"unusual SPIFFE ID":             {[]string{"--sidecar-identity=" + id + "?"}, "--sidecar-identity: "},
		"no gateway's SPIFFE ID":        {[]string{"--sidecar-identity=" + id, "--sidecar-gateways=gateway"}, "--sidecar-gateways: "},
		"gateway in another trust area": {[]string{"--sidecar-identity=" + id, "--sidecar-gateways=spiffe://other/ns/ingress/sa/gateway"}, "--sidecar-gateways: "},
	} {
		t.Run(name, func(t *testing.T) {
			var options mesh.Options
			flags := flag.NewFlagSet("frontend", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			options.AddFlags(flags)
			must.Do(t, flags.Parse(c.flags))
			transport, err := options.Load(mesh.Frontend)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && (err != nil || transport.ID() != (mesh.ID{TrustDomain: "test", Peer: mesh.Frontend})) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestURLsHaveScheme checks URLs of other programs in both modes.
func TestURLsHaveScheme(t *testing.T) {
	certificates, sidecar := mesh.Options{IdentityDir: "/identity"}, mesh.Options{SidecarIdentity: "spiffe://test/ns/admin/sa/admin"}
	for text, want := range map[string][2]bool{"https://a:1/b": {true, false}, "http://a:1/b": {false, true}, "a:1": {false, false}, "http://": {false, false}, "%": {false, false}} {
		if got := [2]bool{certificates.CheckURL(text) == nil, sidecar.CheckURL(text) == nil}; got != want {
			t.Errorf("%s: accepted with certificates %t, with a sidecar %t, want %t", text, got[0], got[1], want)
		}
	}
}
