package egress

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func newPolicy(t testing.TB) *Policy {
	t.Helper()
	p := must.Get(NewPolicy([]string{"Management.Azure.com.", "quay.io", "bücher.example"}, []uint16{443, 8443}))(t)
	return p
}

func TestDecide(t *testing.T) {
	p := newPolicy(t)
	link := &database.EgressLinkDocument{Hosts: []string{"imageregistryx.blob.core.windows.net"}}
	for name, tc := range map[string]struct {
		link    Link
		request Request
		host    string
		reason  Reason
	}{
		"host of the region":         {link, Request{Host: "management.azure.com", Port: 443}, "management.azure.com", Permitted},
		"upper case, trailing dot":   {link, Request{Host: "MANAGEMENT.azure.COM.", Port: 443}, "management.azure.com", Permitted},
		"host in ASCII form":         {link, Request{Host: "xn--bcher-kva.example", Port: 443}, "xn--bcher-kva.example", Permitted},
		"host in Unicode":            {link, Request{Host: "BÜCHER.example", Port: 443}, "xn--bcher-kva.example", Permitted},
		"another port":               {link, Request{Host: "quay.io", Port: 8443}, "quay.io", Permitted},
		"host of the cluster":        {link, Request{Host: "imageregistryX.blob.core.windows.net", Port: 443}, "imageregistryx.blob.core.windows.net", Permitted},
		"host of another cluster":    {&database.EgressLinkDocument{}, Request{Host: "imageregistryx.blob.core.windows.net", Port: 443}, "imageregistryx.blob.core.windows.net", Host},
		"host below a permitted one": {link, Request{Host: "evil.quay.io", Port: 443}, "evil.quay.io", Host},
		"host above a permitted one": {link, Request{Host: "azure.com", Port: 443}, "azure.com", Host},
		"suffix of a permitted one":  {link, Request{Host: "notquay.io", Port: 443}, "notquay.io", Host},
		"port":                       {link, Request{Host: "quay.io", Port: 22}, "quay.io", Port},
		"no link":                    {nil, Request{Host: "quay.io", Port: 443}, "", UnknownLink},
		"no name":                    {link, Request{Port: 443}, "", MissingName},
		"address":                    {link, Request{Host: "20.50.2.1", Port: 443}, "", InvalidName},
		"address in another form":    {link, Request{Host: "0x7f.1", Port: 443}, "", InvalidName},
		"name with NUL":              {link, Request{Host: "quay.io\x00.evil.example", Port: 443}, "", InvalidName},
		"encrypted hello":            {link, Request{Host: "quay.io", Port: 443, Encrypted: true}, "", EncryptedHello},
	} {
		if host, reason := p.Decide(tc.link, tc.request); host != tc.host || reason != tc.reason {
			t.Errorf("%s: %q, %s, want %q, %s", name, host, reason, tc.host, tc.reason)
		}
	}
	for _, invalid := range []string{"*.azure.com", "10.0.0.1", "", "azure"} {
		if _, err := NewPolicy([]string{invalid}, nil); err == nil {
			t.Errorf("a policy permits %q", invalid)
		}
	}
}

// FuzzDecide checks that only listed hosts are permitted, at listed ports.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{"management.azure.com", "QUAY.IO.", "quay.io:443", "bücher.example", "127.0.0.1"} {
		f.Add(seed, uint16(443), false)
	}
	p := newPolicy(f)
	f.Fuzz(func(t *testing.T, host string, port uint16, encrypted bool) {
		canonical, reason := p.Decide(&database.EgressLinkDocument{}, Request{Host: host, Port: port, Encrypted: encrypted})
		if !slices.Contains(Reasons(), reason) {
			t.Errorf("unknown reason %s", reason)
		}
		if reason == Permitted && (encrypted || !slices.Contains([]uint16{443, 8443}, port) || !slices.Contains([]string{"management.azure.com", "quay.io", "xn--bcher-kva.example"}, canonical)) {
			t.Errorf("%q at %d is permitted as %q", host, port, canonical)
		}
	})
}
