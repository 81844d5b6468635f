package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// proxyHeaderBuffer is the size of a reader for readProxyHeader, in bytes. Longer headers are refused.
const proxyHeaderBuffer = 4 << 10

// errLocalConnection is the error about a header that the proxy sent for itself, for example as a health check.
var errLocalConnection = errors.New("the connection is the proxy's own")

// proxyHeader is what the gateway uses of a header.
type proxyHeader struct {
	// LinkID identifies the private endpoint.
	LinkID uint32
	// Source is the address of the client in the customer's network; invalid if the header has none.
	Source netip.AddrPort
}

// readProxyHeader reads the header of PROXY protocol v2 that Azure Private Link writes before the bytes of a connection, and leaves what follows in
// the reader. Version 1 of the protocol is refused, and so are headers with no link ID or with several.
func readProxyHeader(reader *bufio.Reader) (proxyHeader, error) {
	signature, err := reader.Peek(len(proxyproto.SIGV2))
	if err != nil {
		return proxyHeader{}, fmt.Errorf("reading the PROXY header: %w", err)
	}
	if !bytes.Equal(signature, proxyproto.SIGV2) {
		return proxyHeader{}, errors.New("the connection does not begin with a header of PROXY protocol v2")
	}
	parsed, err := proxyproto.Read(reader)
	if err != nil {
		return proxyHeader{}, fmt.Errorf("reading the PROXY header: %w", err)
	}
	if parsed.Command.IsLocal() {
		return proxyHeader{}, errLocalConnection
	}
	fields, err := parsed.TLVs()
	if err != nil {
		return proxyHeader{}, fmt.Errorf("reading the fields of the PROXY header: %w", err)
	}
	var header proxyHeader
	found := false
	for _, field := range fields {
		id, ok := tlvparse.FindAzurePrivateEndpointLinkID([]proxyproto.TLV{field})
		if ok && found {
			return proxyHeader{}, errors.New("the PROXY header has several link IDs")
		}
		if ok {
			header.LinkID, found = id, true
		}
	}
	if !found {
		return proxyHeader{}, errors.New("the PROXY header has no link ID of a private endpoint")
	}
	if source, _, ok := parsed.TCPAddrs(); ok {
		header.Source = source.AddrPort()
	}
	return header, nil
}
