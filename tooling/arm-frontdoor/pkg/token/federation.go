package token

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/golang-jwt/jwt/v5"
)

// exchangeAudience is the audience of a workload's token that is exchanged for one of Entra ID.
const exchangeAudience = "api://AzureADTokenExchange"

// Federation verifies the tokens that a cluster issues to its workloads. A workload exchanges its token for one of the client that
// has the token's subject.
type Federation struct {
	issuer string
	key    atomic.Pointer[ecdsa.PublicKey]
}

// OpenFederation returns a Federation for an issuer whose public key is in a PEM file.
func OpenFederation(issuer, path string) (*Federation, error) {
	f := &Federation{issuer: issuer}
	if err := f.Replace(path); err != nil {
		return nil, err
	}
	return f, nil
}

// Replace replaces the public key by that in a PEM file, for example of a cluster that takes the place of a lost one. Tokens of the earlier key
// are refused from then on.
func (f *Federation) Replace(path string) error {
	key, err := readKey(path)
	if err != nil {
		return err
	}
	f.key.Store(key)
	return nil
}

// readKey reads an EC public key from a PEM file.
func readKey(path string) (*ecdsa.PublicKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s contains a %T, want an EC public key", path, parsed)
	}
	return key, nil
}

// subject returns the subject of a workload's token.
func (f *Federation) subject(assertion string, i *Issuer) (string, error) {
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(assertion, &claims, func(*jwt.Token) (any, error) { return f.key.Load(), nil }, jwt.WithValidMethods([]string{"ES256"}),
		jwt.WithIssuer(f.issuer), jwt.WithAudience(exchangeAudience), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(i.now))
	if err == nil && claims.Subject == "" {
		err = errors.New("the token has no subject")
	}
	return claims.Subject, err
}

// Exchange returns a token for a workload that authenticates as a client with its cluster's token (RFC 7523, section 2.2).
func (i *Issuer) Exchange(tenant, clientID, assertion, scope string) (string, error) {
	return i.issue(scope, func() (*Client, error) {
		client := i.workload(tenant, clientID, assertion)
		if client == nil {
			return nil, ErrInvalidClient
		}
		return client, nil
	})
}

// workload returns the client as which a workload authenticates with its cluster's token, or nil.
func (i *Issuer) workload(tenant, clientID, assertion string) *Client {
	clients := i.clients()
	for n := range clients {
		client := &clients[n]
		if client.Workload == "" || !strings.EqualFold(client.TenantID, tenant) || !strings.EqualFold(client.ClientID, clientID) {
			continue
		}
		federation := cmp.Or(client.Federation, i.Workloads)
		if federation == nil {
			continue
		}
		if subject, err := federation.subject(assertion, i); err == nil && subject == client.Workload {
			return client
		}
	}
	return nil
}
