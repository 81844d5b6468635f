package netfault_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// TestAddressRefuses connects to an address, and tries to listen there.
func TestAddressRefuses(t *testing.T) {
	address := netfault.ClosedAddress(t)
	if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting: %v", err)
	}
	if listener, err := net.Listen("tcp", address); err == nil {
		_ = listener.Close()
		t.Error("somebody else gets the port")
	}
}
