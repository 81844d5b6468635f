package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestReadConnectRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		text, rest string
		want       connectRequest
		err        string
	}{
		"HTTP/1.1":          {"CONNECT quay.io:443 HTTP/1.1\r\nHost: quay.io:443\r\nUser-Agent: ignition\r\n\r\n", "", connectRequest{"quay.io", 443}, ""},
		"HTTP/1.0":          {"CONNECT quay.io:443 HTTP/1.0\r\n\r\n", "", connectRequest{"quay.io", 443}, ""},
		"bytes after it":    {"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01", connectRequest{"quay.io", 443}, ""},
		"upper case":        {"CONNECT QUAY.io.:8443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{"QUAY.io.", 8443}, ""},
		"IPv6":              {"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{"::1", 443}, ""},
		"user":              {"CONNECT user@quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "host:port"},
		"GET":               {"GET https://quay.io/ HTTP/1.1\r\nHost: quay.io\r\n\r\n", "", connectRequest{}, "not CONNECT"},
		"lower-case method": {"connect quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "not CONNECT"},
		"HTTP/2":            {"PRI * HTTP/2.0\r\n\r\n", "", connectRequest{}, "not CONNECT"},
		"no port":           {"CONNECT quay.io HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "host:port"},
		"port 0":            {"CONNECT quay.io:0 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "1 to 65535"},
		"large port":        {"CONNECT quay.io:65979 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "1 to 65535"},
		"zeros":             {"CONNECT quay.io:0443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "1 to 65535"},
		"path":              {"CONNECT /quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "host:port"},
		"URL":               {"CONNECT https://quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", connectRequest{}, "host:port"},
		"body":              {"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n", "", connectRequest{}, "body"},
		"empty body":        {"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "", connectRequest{}, "body"},
		"chunks":            {"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "", connectRequest{}, "body"},
		"bare LF":           {"CONNECT quay.io:443 HTTP/1.1\nHost: x\n\nCONNECT evil.example:443 HTTP/1.1\r\n\r\n", "", connectRequest{}, "CR LF"},
		"no end":            {"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\n", "", connectRequest{}, "EOF"},
		"too large":         {"CONNECT quay.io:443 HTTP/1.1\r\nX: " + strings.Repeat("x", maxConnectRequest) + "\r\n\r\n", "", connectRequest{}, errConnectRequestTooLarge.Error()},
		"TLS":               {"\x16\x03\x01\x02\x00\r\n\r\n", "", connectRequest{}, "reading the request"},
		"nothing":           {"", "", connectRequest{}, "EOF"},
	} {
		reader := bufio.NewReader(strings.NewReader(tc.text + tc.rest))
		got, err := readConnectRequest(reader)
		if tc.want == (connectRequest{}) {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		if rest, _ := io.ReadAll(reader); err != nil || got != tc.want || string(rest) != tc.rest {
			t.Errorf("%s: %+v, %v, then %q", name, got, err, rest)
		}
	}
}

func TestConnectErrorIsAResponse(t *testing.T) {
	var text bytes.Buffer
	must.Do(t, writeConnectError(&text, http.StatusForbidden, "the host is not permitted"))
	response := must.Get(http.ReadResponse(bufio.NewReader(&text), &http.Request{Method: http.MethodConnect}))(t)
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "the host is not permitted\n" || response.StatusCode != http.StatusForbidden || !response.Close {
		t.Errorf("%s, %q, %v", response.Status, body, err)
	}
}

// FuzzRead reads any bytes. What is accepted ends with an empty line, and nothing after it is consumed.
func FuzzReadConnectRequest(f *testing.F) {
	for _, seed := range []string{"CONNECT quay.io:443 HTTP/1.1\r\nHost: x\r\n\r\nrest", "CONNECT [::1]:443 HTTP/1.0\r\n\r\n", "CONNECT a:1 HTTP/1.1\n\n\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		reader := bufio.NewReader(bytes.NewReader(text))
		got, err := readConnectRequest(reader)
		if err != nil {
			if len(text) > 2*maxConnectRequest && errors.Is(err, io.EOF) {
				t.Errorf("%d bytes were read", len(text))
			}
			return
		}
		rest, _ := io.ReadAll(reader)
		header := text[:len(text)-len(rest)]
		if !bytes.HasSuffix(header, []byte("\r\n\r\n")) || bytes.Index(header, []byte("\r\n\r\n")) != len(header)-4 || len(header) > maxConnectRequest {
			t.Errorf("the request %q has the rest %q", header, rest)
		}
		if got.Port == 0 || !bytes.HasPrefix(header, []byte("CONNECT ")) || !bytes.Contains(header, []byte(got.Host)) {
			t.Errorf("%+v of %q", got, header)
		}
	})
}
