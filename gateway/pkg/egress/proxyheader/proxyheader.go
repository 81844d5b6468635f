// Package proxyheader reads the header of PROXY protocol v2 that Azure Private Link writes before the bytes of a connection. It identifies the
// private endpoint of the connection. Whoever can connect to the gateway directly can write any header: only the load balancer of the private
// link service may reach it.
package proxyheader

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// BufferSize is the size of a reader for Read, in bytes. Longer headers are refused.
const BufferSize = 4 << 10

// ErrLocal is the error about a header that the proxy sent for itself, for example as a health check.
var ErrLocal = errors.New("the connection is the proxy's own")

// Header is what the gateway uses of a header.
type Header struct {
	// LinkID identifies the private endpoint.
	LinkID uint32
	// Source is the address of the client in the customer's network; invalid if the header has none.
	Source netip.AddrPort
}

// Read reads the header and leaves what follows in the reader. Version 1 of the protocol is refused, and so are headers with no link ID or with
// several.
func Read(reader *bufio.Reader) (Header, error) {
	signature, err := reader.Peek(len(proxyproto.SIGV2))
	if err != nil {
		return Header{}, fmt.Errorf("reading the PROXY header: %w", err)
	}
	if !bytes.Equal(signature, proxyproto.SIGV2) {
		return Header{}, errors.New("the connection does not begin with a header of PROXY protocol v2")
	}
	parsed, err := proxyproto.Read(reader)
	if err != nil {
		return Header{}, fmt.Errorf("reading the PROXY header: %w", err)
	}
	if parsed.Command.IsLocal() {
		return Header{}, ErrLocal
	}
	fields, err := parsed.TLVs()
	if err != nil {
		return Header{}, fmt.Errorf("reading the fields of the PROXY header: %w", err)
	}
	var header Header
	found := false
	for _, field := range fields {
		id, ok := tlvparse.FindAzurePrivateEndpointLinkID([]proxyproto.TLV{field})
		if ok && found {
			return Header{}, errors.New("the PROXY header has several link IDs")
		}
		if ok {
			header.LinkID, found = id, true
		}
	}
	if !found {
		return Header{}, errors.New("the PROXY header has no link ID of a private endpoint")
	}
	if source, _, ok := parsed.TCPAddrs(); ok {
		header.Source = source.AddrPort()
	}
	return header, nil
}
