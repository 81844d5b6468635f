package intent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tink-crypto/tink-go/v2/jwt"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
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
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       keysTimeout,
	}
	return NewVerifier(VerifierOptions{Issuer: issuer, Audience: audience, KeysURL: keysURL, Client: client})
}

// LoadVerifier returns a Verifier of the intents in the region of a trust domain, for a program outside of its mesh. It reads the keys from a file with a
// public Tink keyset, whose changes it follows. If the changed file is not a keyset, the previous one stays in use. ring returns the IDs of the keys in use.
func LoadVerifier(path, trustDomain string) (v *Verifier, ring func() keyfile.Ring, err error) {
	type content struct {
		*keys
		ring keyfile.Ring
	}
	file, err := disk.NewValue(func() (content, error) {
		handle, err := keyfile.ReadPublic(path)
		if err != nil {
			return content{}, err
		}
		set, err := jwt.JWKSetFromPublicKeysetHandle(handle)
		if err != nil {
			return content{}, fmt.Errorf("%s has keys that do not verify JSON Web Tokens: %w", path, err)
		}
		known, err := parseKeys(set)
		if err != nil {
			return content{}, fmt.Errorf("%s: %w", path, err)
		}
		return content{known, keyfile.RingOf(handle)}, nil
	}, path)
	if err != nil {
		return nil, nil, err
	}
	issuer, audience := RegionIssuer(trustDomain)
	return &Verifier{issuer: issuer, audience: audience, now: time.Now, run: func(context.Context) {}, find: func(_ context.Context, id string) (*keys, bool, error) {
		known := file.Current().keys
		return known, known.ids[id], nil
	}}, func() keyfile.Ring { return file.Current().ring }, nil
}
