package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestWorkloadsExchangeTheirTokens checks which tokens of a cluster are exchanged for a token of a client.
func TestWorkloadsExchangeTheirTokens(t *testing.T) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	other := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	file := filepath.Join(t.TempDir(), "issuer.pub")
	write := func(key *ecdsa.PrivateKey) {
		der := must.Get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
		must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	}
	write(key)
	const store = "https://store.example"
	issuer := must.Get(token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{
		{TenantID: "t", ClientID: "frontend", ObjectID: "f", Workload: "sa:frontend", Audiences: []string{store}},
		{TenantID: "t", ClientID: "backend", ObjectID: "b", Workload: "sa:backend", Audiences: []string{store}},
	}, store))(t)
	issuer.Workloads = must.Get(token.OpenFederation("https://cluster.example", file))(t)
	now := time.Now()
	sign := func(key *ecdsa.PrivateKey, change func(c *jwt.RegisteredClaims)) string {
		claims := jwt.RegisteredClaims{Issuer: "https://cluster.example", Subject: "sa:frontend", Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"},
			ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour))}
		change(&claims)
		return must.Get(jwt.NewWithClaims(jwt.SigningMethodES256, claims).SignedString(key))(t)
	}
	valid := sign(key, func(*jwt.RegisteredClaims) {})
	for reason, test := range map[string]struct {
		tenant, client, assertion, scope string
		want                             error
	}{
		"its own client":        {"t", "frontend", valid, store + "/.default", nil},
		"the client of another": {"t", "backend", valid, store + "/.default", token.ErrInvalidClient},
		"another tenant":        {"u", "frontend", valid, store + "/.default", token.ErrInvalidClient},
		"another audience":      {"t", "frontend", valid, "https://management.azure.com/.default", token.ErrInvalidAudience},
		"another cluster's key": {"t", "frontend", sign(other, func(*jwt.RegisteredClaims) {}), store + "/.default", token.ErrInvalidClient},
		"another issuer":        {"t", "frontend", sign(key, func(c *jwt.RegisteredClaims) { c.Issuer = "https://x.example" }), store + "/.default", token.ErrInvalidClient},
		"a token for Kubernetes": {"t", "frontend", sign(key, func(c *jwt.RegisteredClaims) { c.Audience = jwt.ClaimStrings{"kubernetes"} }), store + "/.default",
			token.ErrInvalidClient},
		"expired":    {"t", "frontend", sign(key, func(c *jwt.RegisteredClaims) { c.ExpiresAt = jwt.NewNumericDate(now.Add(-time.Hour)) }), store + "/.default", token.ErrInvalidClient},
		"no end":     {"t", "frontend", sign(key, func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil }), store + "/.default", token.ErrInvalidClient},
		"no subject": {"t", "frontend", sign(key, func(c *jwt.RegisteredClaims) { c.Subject = "" }), store + "/.default", token.ErrInvalidClient},
		"no token":   {"t", "frontend", "", store + "/.default", token.ErrInvalidClient},
	} {
		text, err := issuer.Exchange(test.tenant, test.client, test.assertion, test.scope)
		if !errors.Is(err, test.want) || (err == nil) != (text != "") {
			t.Errorf("%s: %v, want %v", reason, err, test.want)
		}
	}
	if _, err := issuer.Issue("t", "frontend", "", store+"/.default"); !errors.Is(err, token.ErrInvalidClient) {
		t.Errorf("a workload's client with an empty secret: %v, want %v", err, token.ErrInvalidClient)
	}

	// Another cluster takes the place of the first one.
	write(other)
	must.Do(t, issuer.Workloads.Replace(file))
	if _, err := issuer.Exchange("t", "frontend", sign(other, func(*jwt.RegisteredClaims) {}), store+"/.default"); err != nil {
		t.Errorf("a token of the new cluster: %v", err)
	}
	if _, err := issuer.Exchange("t", "frontend", valid, store+"/.default"); !errors.Is(err, token.ErrInvalidClient) {
		t.Errorf("a token of the replaced cluster: %v, want %v", err, token.ErrInvalidClient)
	}
	if err := issuer.Workloads.Replace(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestAddedClientsGetTokens checks that clients that are added later get tokens, as those from the start do.
func TestAddedClientsGetTokens(t *testing.T) {
	issuer := must.Get(token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{{TenantID: "t", ClientID: "first", ClientSecret: "one", ObjectID: "f"}}))(t)
	const scope = "https://management.azure.com/.default"
	if _, err := issuer.Issue("t", "second", "two", scope); !errors.Is(err, token.ErrInvalidClient) {
		t.Errorf("a token for an unknown client: %v", err)
	}
	issuer.AddClients(token.Client{TenantID: "t", ClientID: "second", ClientSecret: "two", ObjectID: "s"})
	for client, secret := range map[string]string{"first": "one", "second": "two"} {
		if _, err := issuer.Issue("t", client, secret, scope); err != nil {
			t.Errorf("a token for %s: %v", client, err)
		}
	}
}
