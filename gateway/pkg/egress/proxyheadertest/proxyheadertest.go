// Package proxyheadertest makes headers of PROXY protocol v2 for tests.
package proxyheadertest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// Source is the address of the client in all headers.
const Source = "10.0.0.4:41000"

// Link returns the header of a connection through the private endpoint with a link ID.
func Link(t testing.TB, id uint32) []byte {
	t.Helper()
	return Header(t, proxyproto.PROXY, Field(id))
}

// Field returns the field with a link ID.
func Field(id uint32) proxyproto.TLV {
	return proxyproto.TLV{Type: tlvparse.PP2_TYPE_AZURE, Value: binary.LittleEndian.AppendUint32([]byte{tlvparse.PP2_SUBTYPE_AZURE_PRIVATEENDPOINT_LINKID}, id)}
}

// Header returns a header with fields.
func Header(t testing.TB, command proxyproto.ProtocolVersionAndCommand, fields ...proxyproto.TLV) []byte {
	t.Helper()
	h := &proxyproto.Header{Version: 2, Command: command, TransportProtocol: proxyproto.TCPv4,
		SourceAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(Source)), DestinationAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}}
	if err := h.SetTLVs(fields); err != nil {
		t.Fatal(err)
	}
	text, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
