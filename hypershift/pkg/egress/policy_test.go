package egress

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// names resolves names from a table.
type names map[string][]string

func (n names) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, text := range n[host] {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	if len(addresses) == 0 {
		return nil, errors.New("no such host")
	}
	return addresses, nil
}

func TestResolve(t *testing.T) {
	policy := Policy{
		Exceptions: []string{"127.0.0.1:18400", "issuer.local:443"},
		Lookup: names{
			"public.example": {"20.50.2.1", "2603:1030::1"}, "private.example": {"10.0.0.1"}, "mixed.example": {"10.0.0.1", "20.50.2.1", "fd00::1"},
			"metadata.example": {"169.254.169.254"}, "mapped.example": {"::ffff:10.0.0.1"}, "mapped-public.example": {"::ffff:20.50.2.1"}, "issuer.local": {"10.1.1.1"},
			"two.example": {"10.0.0.1", "127.0.0.1", "10.0.0.2"},
		}.lookup,
	}
	tests := map[string]struct {
		reason, target string
		want           []string
		outcome        string
	}{
		"PublicName":      {"all addresses are tried in the order of the answer", "public.example:443", []string{"20.50.2.1:443", "[2603:1030::1]:443"}, OutcomeAllowed},
		"UpperCase":       {"names ignore case, and a trailing dot is the same name", "Public.Example.:443", []string{"20.50.2.1:443", "[2603:1030::1]:443"}, OutcomeAllowed},
		"PublicAddress":   {"a literal address is an address", "20.50.2.1:443", []string{"20.50.2.1:443"}, OutcomeAllowed},
		"PublicIPv6":      {"a literal address is an address", "[2603:1030::1]:443", []string{"[2603:1030::1]:443"}, OutcomeAllowed},
		"Mixed":           {"only the public addresses are used", "mixed.example:443", []string{"20.50.2.1:443"}, OutcomeAllowed},
		"MappedPublic":    {"a mapped address is its IPv4 address", "mapped-public.example:443", []string{"20.50.2.1:443"}, OutcomeAllowed},
		"Private":         {"another network", "private.example:443", nil, OutcomeAddress},
		"SeveralKinds":    {"no address is public", "two.example:443", nil, OutcomeAddress},
		"Metadata":        {"it issues tokens", "metadata.example:443", nil, OutcomeAddress},
		"Mapped":          {"a mapped address is its IPv4 address", "mapped.example:443", nil, OutcomeAddress},
		"Loopback":        {"the proxy's own machine", "127.0.0.1:443", nil, OutcomeAddress},
		"Zone":            {"the address of an interface", "[fe80::1%25eth0]:443", nil, OutcomeInvalid},
		"Port":            {"another service", "public.example:22", nil, OutcomePort},
		"Http":            {"a redirect to http", "public.example:80", nil, OutcomePort},
		"PrivatePort":     {"the port is checked first, without a lookup", "unknown.example:8443", nil, OutcomePort},
		"Unresolved":      {"no such name", "unknown.example:443", nil, OutcomeUnresolved},
		"OctalNumbers":    {"not an address, and not a name that resolves", "0177.0.0.1:443", nil, OutcomeUnresolved},
		"NoPort":          {"not a target", "public.example", nil, OutcomeInvalid},
		"PortZero":        {"not a port", "public.example:0", nil, OutcomeInvalid},
		"PortName":        {"not a number", "public.example:https", nil, OutcomeInvalid},
		"LargePort":       {"not a port", "public.example:65979", nil, OutcomeInvalid},
		"Empty":           {"no host", ":443", nil, OutcomeInvalid},
		"Slash":           {"not a name", "public.example/a:443", nil, OutcomeInvalid},
		"Exception":       {"the issuer of a local region", "127.0.0.1:18400", []string{"127.0.0.1:18400"}, OutcomeAllowed},
		"ExceptionByName": {"the name is permitted whatever it resolves to", "issuer.local:443", []string{"10.1.1.1:443"}, OutcomeAllowed},
		"BesideException": {"an exception is for one port", "127.0.0.1:18401", nil, OutcomePort},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			resolved, err := policy.resolve(t.Context(), c.target)
			var got []string
			for _, address := range resolved {
				got = append(got, address.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" || outcomeOf(err) != c.outcome {
				t.Errorf("outcome %q, want %q (%s), %v (-want +got):\n%s", outcomeOf(err), c.outcome, c.reason, err, diff)
			}
		})
	}
}

// TestReasonHasNoAddress checks that customers do not learn how names resolve inside the management cluster.
func TestReasonHasNoAddress(t *testing.T) {
	policy := Policy{Lookup: names{"two.example": {"10.0.0.1", "127.0.0.1", "10.0.0.2"}}.lookup}
	_, err := policy.resolve(t.Context(), "two.example:443")
	if err == nil || err.Error() != "two.example has no public address: loopback, private" {
		t.Errorf("got %v", err)
	}
}
