package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// sendHello returns what a TLS client sends first.
func sendHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- tls.Client(client, config).Handshake() }()
	header := make([]byte, 5)
	must.Get(io.ReadFull(server, header))(t)
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	must.Get(io.ReadFull(server, body))(t)
	_ = server.Close()
	<-ended
	_ = client.Close()
	return append(header, body...)
}

// fragmented splits the message of one record into records of size bytes.
func fragmented(record []byte, size int) []byte {
	var all []byte
	for body := record[5:]; len(body) > 0; {
		n := min(size, len(body))
		all = append(all, record[0], record[1], record[2], byte(n>>8), byte(n))
		all = append(all, body[:n]...)
		body = body[n:]
	}
	return all
}

func helloClient(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10} //nolint:gosec // the test has no server
}

func TestReadClientHello(t *testing.T) {
	hidden := helloClient("secret.example")
	hidden.MinVersion, hidden.EncryptedClientHelloConfigList = tls.VersionTLS13, ECHConfigList(t, "public.example")
	old := helloClient("old.example")
	old.MaxVersion = tls.VersionTLS10
	large := helloClient("large.example")
	for range 2000 {
		large.NextProtos = append(large.NextProtos, "protocol")
	}
	plain := sendHello(t, helloClient("a.example"))
	for name, tc := range map[string]struct {
		text      []byte
		want      string
		encrypted bool
		err       string
	}{
		"name":                   {plain, "a.example", false, ""},
		"upper case":             {sendHello(t, helloClient("A.Example")), "A.Example", false, ""},
		"TLS 1.0":                {sendHello(t, old), "old.example", false, ""},
		"no name":                {sendHello(t, helloClient("")), "", false, ""},
		"address":                {sendHello(t, helloClient("127.0.0.1")), "", false, ""},
		"fragmented":             {fragmented(plain, 7), "a.example", false, ""},
		"encrypted hello":        {sendHello(t, hidden), "public.example", true, ""},
		"bytes after it":         {append(bytes.Clone(plain), "more"...), "a.example", false, ""},
		"too large":              {sendHello(t, large), "", false, errClientHelloTooLarge.Error()},
		"truncated":              {plain[:len(plain)-1], "", false, "EOF"},
		"nothing":                {nil, "", false, "EOF"},
		"HTTP":                   {[]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), "", false, "does not begin with TLS"},
		"another message":        {[]byte("\x16\x03\x01\x00\x04\x0e\x00\x00\x00"), "", false, "does not begin with TLS"},
		"empty records":          {bytes.Repeat([]byte{0x16, 3, 1, 0, 0}, 4000), "", false, "TLS"},
		"records of alerts only": {bytes.Repeat([]byte{0x15, 3, 1, 0, 2, 1, 0x5a}, 4000), "", false, "TLS"},
	} {
		for size, reader := range map[string]io.Reader{"at once": bytes.NewReader(tc.text), "one byte at a time": slow{bytes.NewReader(tc.text)}} {
			got, err := readClientHello(bufio.NewReaderSize(reader, 4<<10))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s, %s: %+v, %v", name, size, got, err)
				}
				continue
			}
			if err != nil || got.ServerName != tc.want || got.Encrypted != tc.encrypted || !bytes.HasPrefix(tc.text, got.Bytes) || size == "at once" && !bytes.Equal(tc.text, got.Bytes) {
				t.Errorf("%s, %s: %+v, %v", name, size, got, err)
			}
		}
	}
	if _, err := readClientHello(bufio.NewReader(io.MultiReader(bytes.NewReader(plain[:20]), failing{}))); !errors.Is(err, errBroken) {
		t.Errorf("a broken connection: %v", err)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

// slow is a reader of single bytes.
type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), 1)]) }

// FuzzRead reads any bytes: nothing is lost and nothing is read beyond the limit.
func FuzzReadClientHello(f *testing.F) {
	plain := sendHello(f, helloClient("a.example"))
	f.Add(plain)
	f.Add(fragmented(plain, 9))
	f.Add(append(bytes.Clone(plain), "more"...))
	f.Fuzz(func(t *testing.T, text []byte) {
		reader := bufio.NewReaderSize(bytes.NewReader(text), 4<<10)
		got, err := readClientHello(reader)
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(reader)
		if !bytes.Equal(append(bytes.Clone(got.Bytes), rest...), text) {
			t.Errorf("%d bytes were read and %d are left of %d", len(got.Bytes), len(rest), len(text))
		}
		if len(got.Bytes) > maxClientHello+4<<10 {
			t.Errorf("%d bytes were read", len(got.Bytes))
		}
	})
}
