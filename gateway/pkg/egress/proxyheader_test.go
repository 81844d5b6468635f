package egress

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheadertest"
)

func TestReadProxyHeader(t *testing.T) {
	other := proxyproto.TLV{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("example.com")}
	long := proxyproto.TLV{Type: proxyproto.PP2_TYPE_NOOP, Value: make([]byte, 5000)}
	short := proxyproto.TLV{Type: tlvparse.PP2_TYPE_AZURE, Value: []byte{1, 2, 3}}
	for name, tc := range map[string]struct {
		text []byte
		want uint32
		err  string
	}{
		"link":               {proxyheadertest.Header(t, proxyproto.PROXY, proxyheadertest.Field(536872312)), 536872312, ""},
		"with other fields":  {proxyheadertest.Header(t, proxyproto.PROXY, other, short, proxyheadertest.Field(7)), 7, ""},
		"two links":          {proxyheadertest.Header(t, proxyproto.PROXY, proxyheadertest.Field(7), proxyheadertest.Field(8)), 0, "several link IDs"},
		"the same twice":     {proxyheadertest.Header(t, proxyproto.PROXY, proxyheadertest.Field(7), proxyheadertest.Field(7)), 0, "several link IDs"},
		"no link":            {proxyheadertest.Header(t, proxyproto.PROXY, other), 0, "no link ID"},
		"link of wrong size": {proxyheadertest.Header(t, proxyproto.PROXY, short), 0, "no link ID"},
		"local":              {proxyheadertest.Header(t, proxyproto.LOCAL), 0, errLocalConnection.Error()},
		"long":               {proxyheadertest.Header(t, proxyproto.PROXY, proxyheadertest.Field(7), long), 0, "reading the PROXY header"},
		"version 1":          {[]byte("PROXY TCP4 10.0.0.4 10.0.0.9 41000 443\r\n"), 0, "PROXY protocol v2"},
		"TLS":                {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00"), 0, "PROXY protocol v2"},
		"truncated":          {proxyheadertest.Header(t, proxyproto.PROXY, proxyheadertest.Field(7))[:30], 0, "reading the PROXY header"},
		"nothing":            {nil, 0, "reading the PROXY header"},
	} {
		// The bytes arrive one at a time, and what follows stays in the reader.
		reader := bufio.NewReaderSize(io.MultiReader(slow{bytes.NewReader(tc.text)}, strings.NewReader("rest")), proxyHeaderBuffer)
		got, err := readProxyHeader(reader)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		rest, _ := io.ReadAll(reader)
		if err != nil || got.LinkID != tc.want || got.Source.String() != proxyheadertest.Source || string(rest) != "rest" {
			t.Errorf("%s: %+v, %v, then %q", name, got, err, rest)
		}
	}
}

// FuzzRead reads any bytes. A header that is accepted has its link ID in the bytes, and nothing after the header is consumed.
func FuzzReadProxyHeader(f *testing.F) {
	for _, seed := range [][]byte{proxyheadertest.Header(f, proxyproto.PROXY, proxyheadertest.Field(7)), proxyheadertest.Header(f, proxyproto.LOCAL), proxyheadertest.Header(f, proxyproto.PROXY, proxyheadertest.Field(7), proxyheadertest.Field(8)), []byte("PROXY UNKNOWN\r\n")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		reader := bufio.NewReaderSize(bytes.NewReader(text), proxyHeaderBuffer)
		got, err := readProxyHeader(reader)
		if err != nil {
			if errors.Is(err, io.ErrShortBuffer) {
				t.Error(err)
			}
			return
		}
		consumed := 16 + int(binary.BigEndian.Uint16(text[14:16]))
		rest, _ := io.ReadAll(reader)
		if !bytes.Equal(rest, text[consumed:]) {
			t.Errorf("%d bytes are left of %d after a header of %d", len(rest), len(text), consumed)
		}
		if !bytes.Contains(text[:consumed], proxyheadertest.Field(got.LinkID).Value) {
			t.Errorf("the header has no link ID %d", got.LinkID)
		}
	})
}
