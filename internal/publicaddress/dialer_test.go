package publicaddress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestConnectTriesPublicAddressesOnly resolves a name to public and other addresses, of which the first public one refuses the connection.
func TestConnectTriesPublicAddressesOnly(t *testing.T) {
	var dialed []string
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	d := Dialer{
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "mixed.example":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:20.50.2.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("20.50.2.2")}, nil
			case "private.example":
				return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("127.0.0.1")}, nil
			}
			return nil, errors.New("no such host")
		},
		Dial: func(_ context.Context, address netip.AddrPort) (net.Conn, error) {
			dialed = append(dialed, address.String())
			if len(dialed) == 1 {
				return nil, errors.New("refused")
			}
			return near, nil
		},
	}
	if got, err := d.Connect(t.Context(), "mixed.example", 443, false); err != nil || got != near {
		t.Errorf("connected %v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"20.50.2.1:443", "20.50.2.2:443"}, dialed); diff != "" {
		t.Error(diff)
	}
	var refused *RefusedError
	if _, err := d.Connect(t.Context(), "private.example", 443, false); !errors.As(err, &refused) || err.Error() != "private.example has no public address: loopback, private" {
		t.Errorf("a private host: %v", err)
	}
	if addresses, err := d.Resolve(t.Context(), "private.example", true); err != nil || len(addresses) != 3 {
		t.Errorf("an excepted host: %v, %v", addresses, err)
	}
	var unresolved *UnresolvedError
	if _, err := d.Connect(t.Context(), "unknown.example", 443, false); !errors.As(err, &unresolved) {
		t.Errorf("an unknown host: %v", err)
	}
	if len(dialed) != 2 {
		t.Errorf("a refused host was dialed: %v", dialed)
	}
}
