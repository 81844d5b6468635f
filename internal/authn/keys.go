package authn

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// issuerKeys fetches the keys that an issuer publishes (OpenID Connect Discovery 1.0, section 4; RFC 7517).
type issuerKeys struct {
	// issuer is the value of the iss claim. For some issuers it ends with a slash.
	issuer string
	client *http.Client
	// ignored is called with the reasons why keys of a fetched set are not used; may be nil.
	ignored func(reasons []string)
}

// configuration is an OpenID configuration (OpenID Connect Discovery 1.0, section 3).
type configuration struct {
	Issuer  string `json:"issuer"`
	KeysURI string `json:"jwks_uri"`
	Endpoints
}

// configuration returns the OpenID configuration of the issuer.
func (k issuerKeys) configuration(ctx context.Context) (configuration, error) {
	content, err := keycache.Get(ctx, k.client, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return configuration{}, err
	}
	var c configuration
	if err := wire.Unmarshal(content, &c); err != nil {
		return configuration{}, fmt.Errorf("the issuer's OpenID configuration: %w", err)
	}
	if c.Issuer != k.issuer {
		return configuration{}, fmt.Errorf("the OpenID configuration is that of issuer %q, want %q", c.Issuer, k.issuer)
	}
	return c, nil
}

// fetch returns the keys that the issuer publishes, by ID.
func (k issuerKeys) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	known, err := k.configuration(ctx)
	if err != nil {
		return nil, err
	}
	content, err := keycache.Get(ctx, k.client, known.KeysURI)
	if err != nil {
		return nil, err
	}
	keys, ignored, err := keycache.RSAKeys(content)
	if k.ignored != nil {
		k.ignored(ignored)
	}
	return keys, err
}

// findKey returns the key with an ID.
func findKey(ctx context.Context, keys *keycache.Cache[map[string]*rsa.PublicKey], id string) (*rsa.PublicKey, error) {
	known, found, err := keys.Find(ctx, func(byID map[string]*rsa.PublicKey) bool { return byID[id] != nil })
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("the issuer does not publish the key")
	}
	return known[id], nil
}

// reportIgnored returns a function that counts the keys of an issuer that cannot be used, and logs them when they change. log and metrics may be nil.
func reportIgnored(log *slog.Logger, metrics prometheus.Registerer) func(reasons []string) {
	count := prometheus.NewGauge(prometheus.GaugeOpts{Name: "authn_issuer_keys_ignored", Help: "Published keys of the token issuer that cannot be used. Tokens that they signed are refused."})
	if metrics != nil {
		metrics.MustRegister(count)
	}
	var mu sync.Mutex
	var last []string
	return func(reasons []string) {
		mu.Lock()
		defer mu.Unlock()
		count.Set(float64(len(reasons)))
		if log != nil && !slices.Equal(reasons, last) {
			log.Warn("ignoring keys of the token issuer", logkey.Error, strings.Join(reasons, "; "))
		}
		last = reasons
	}
}
