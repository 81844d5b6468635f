package intent

import (
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// keysTimeout limits a request for the published keys.
const keysTimeout = 3 * time.Second

// RegionIssuer returns the issuer and the audience of intents in the region of a trust domain: admin's SPIFFE ID, and that of the
// trust domain. An intent of another region is not accepted.
func RegionIssuer(trustDomain string) (issuer, audience string) {
	id := mesh.ID{TrustDomain: trustDomain, Peer: mesh.Admin}
	return id.URL().String(), "spiffe://" + trustDomain
}

// NewRegionVerifier returns a Verifier of the intents of the identity's region. It fetches the keys from keysURL, only from a
// server that has the identity of admin.
func NewRegionVerifier(identity mesh.Transport, keysURL string) *Verifier {
	issuer, audience := RegionIssuer(identity.ID().TrustDomain)
	transport := identity.ClientTransport(mesh.Admin)
	transport.DisableKeepAlives = true
	return NewVerifier(VerifierOptions{Issuer: issuer, Audience: audience, KeysURL: keysURL, Client: keysClient(transport)})
}

// NewPublicVerifier returns a Verifier of the intents of a trust domain, for a program outside of its mesh. It fetches the keys from keysURL with a transport
// that must verify the server.
func NewPublicVerifier(transport http.RoundTripper, trustDomain, keysURL string) *Verifier {
	issuer, audience := RegionIssuer(trustDomain)
	return NewVerifier(VerifierOptions{Issuer: issuer, Audience: audience, KeysURL: keysURL, Client: keysClient(transport)})
}

// keysClient returns a client that follows no redirects.
func keysClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: keysTimeout}
}
