package mesh

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func issue(t *testing.T, authority *Authority, peer Peer) *Identity {
	t.Helper()
	dir := filepath.Join(t.TempDir(), string(peer))
	must.Do(t, authority.Issue(dir, peer, "127.0.0.1"))
	return must.Get(LoadIdentity(dir))(t)
}

func open(t *testing.T, trustDomain string) *Authority {
	t.Helper()
	return must.Get(OpenAuthority(t.TempDir(), trustDomain))(t)
}

func TestOnlyAllowedPeersConnect(t *testing.T) {
	region := open(t, "local")
	server := issue(t, region, ClusterService)
	cases := map[string]struct {
		reason string
		client *Identity
		expect Peer
		refuse bool
	}{
		"AllowedPeer":         {"the frontend is an allowed client", issue(t, region, Frontend), ClusterService, false},
		"PeerNotAllowed":      {"the agent has a valid certificate and is not an allowed client", issue(t, region, MaestroAgent), ClusterService, true},
		"OtherAuthority":      {"the region trusts only its own authority", issue(t, open(t, "local"), Frontend), ClusterService, true},
		"OtherTrustDomain":    {"the trust domain is that of another region", issue(t, open(t, "elsewhere"), Frontend), ClusterService, true},
		"ServerIsNotExpected": {"the client expects another server", issue(t, region, Frontend), MaestroServer, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id, err := PeerOf(*r.TLS)
				if err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, string(id.Peer))
			}))
			s.Config.ErrorLog = nil
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			s.Listener = tls.NewListener(listener, server.ServerTLS(Frontend, Backend))
			s.Start()
			defer s.Close()
			client := http.Client{Transport: &http.Transport{TLSClientConfig: c.client.ClientTLS(c.expect)}}
			defer client.CloseIdleConnections()
			response, err := client.Get("https://" + listener.Addr().String())
			if c.refuse {
				if err == nil {
					t.Fatalf("connected although %s", c.reason)
				}
				return
			}
			if err != nil {
				t.Fatalf("not connected although %s: %v", c.reason, err)
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			if string(body) != string(Frontend) {
				t.Errorf("the server verified the peer %q", body)
			}
		})
	}
}

func TestReopenedAuthorityHasSameCertificate(t *testing.T) {
	dir := t.TempDir()
	first := must.Get(OpenAuthority(dir, "local"))(t)
	second := must.Get(OpenAuthority(dir, "local"))(t)
	if string(first.CertificatePEM()) != string(second.CertificatePEM()) {
		t.Error("opening the authority again created a new one")
	}
}

func TestParseID(t *testing.T) {
	cases := map[string]bool{
		"spiffe://local/ns/frontend/sa/frontend": true,
		"spiffe://local/ns/frontend/sa/backend":  false,
		"spiffe:///ns/frontend/sa/frontend":      false,
		"https://local/ns/frontend/sa/frontend":  false,
		"spiffe://local/ns//sa/":                 false,
		"spiffe://local/frontend":                false,
	}
	for text, valid := range cases {
		u := must.Get(url.Parse(text))(t)
		id, err := ParseID(u)
		if (err == nil) != valid {
			t.Errorf("ParseID(%s): %v", text, err)
		}
		if valid && id.URL().String() != text {
			t.Errorf("%s was formatted as %s", text, id.URL())
		}
	}
}

// TestHandlerForUsesPatternOfServer sends requests whose pattern the server returns: one with a rule, and one without.
func TestHandlerForUsesPatternOfServer(t *testing.T) {
	for pattern, want := range map[string]int{"GET /healthz": http.StatusOK, Unrouted: http.StatusOK, "GET /new": http.StatusForbidden, "": http.StatusForbidden} {
		handler := NewAuthorizer(Frontend, Rules(), nil).HandlerFor(&Identity{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(*http.Request) string { return pattern })
		request, recorder := httptest.NewRequest(http.MethodGet, "/healthz", nil), httptest.NewRecorder()
		state := connectionOf(ARMFrontDoor)
		request.TLS = &state
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("the pattern %q: status %d, want %d", pattern, recorder.Code, want)
		}
	}
}
