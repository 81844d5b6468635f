package authn_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	audience = "https://provider.example"
	arm      = "797f4846-ba00-4fd7-ba43-dac1f8f63013"
	object   = "4f2f6d57-7f0c-45b5-8a26-93c1a3f3a6d2"
	tenant   = "33e01921-4d64-4f8c-a055-5bdaffd5e33d"
)

// issuer publishes its keys as Entra does, and signs tokens.
type issuer struct {
	*httptest.Server
	mu      sync.Mutex
	keys    map[string]*rsa.PrivateKey
	fetches atomic.Int64
	down    atomic.Bool
	// suffix is appended to the URL in the issuer's name.
	suffix string
	// fetching, if not nil, blocks each request for the keys: the issuer sends to it, and then receives from it before it
	// responds.
	fetching chan struct{}
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{keys: map[string]*rsa.PrivateKey{}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var document any
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			document = map[string]any{"issuer": i.URL + i.suffix, "jwks_uri": i.URL + "/keys"}
		case "/keys":
			i.fetches.Add(1)
			if i.fetching != nil {
				i.fetching <- struct{}{}
				<-i.fetching
			}
			document = map[string]any{"keys": i.published()}
		}
		_ = json.NewEncoder(w).Encode(document)
	}))
	t.Cleanup(i.Close)
	i.add(t, "first")
	return i
}

func (i *issuer) published() []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := []any{map[string]any{"kty": "EC", "kid": "other key type"}}
	for id, key := range i.keys {
		list = append(list, map[string]any{
			"kty": "RSA", "use": "sig", "kid": id,
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		})
	}
	return list
}

func (i *issuer) add(t testing.TB, id string) {
	t.Helper()
	i.addOf(t, id, 2048)
}

func (i *issuer) addOf(t testing.TB, id string, bits int) {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, bits))(t)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = key
}

// claims returns valid claims with changes; nil removes a claim.
func (i *issuer) claims(changes jwt.MapClaims) jwt.MapClaims {
	now := time.Now()
	all := jwt.MapClaims{
		"iss": i.URL + i.suffix, "aud": audience, "appid": arm, "oid": object, "tid": tenant,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for name, value := range changes {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

// repeated are claims whose text has oid twice, with the same value.
type repeated struct{ jwt.MapClaims }

// MarshalJSON implements json.Marshaler.
func (r repeated) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(r.MapClaims)
	return append([]byte(`{"oid":"`+object+`",`), text[1:]...), err
}

func (i *issuer) sign(t testing.TB, id string, changes jwt.MapClaims) string {
	t.Helper()
	return i.signClaims(t, id, i.claims(changes))
}

func (i *issuer) signClaims(t testing.TB, id string, claims jwt.Claims) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = id
	return must.Get(token.SignedString(i.keys[id]))(t)
}

func (i *issuer) tokens() *authn.TokenVerifier {
	return authn.NewTokenVerifier(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{strings.ToUpper(arm)}, Client: i.Client()})
}

// authenticate authenticates a request with an Authorization header.
func authenticate(a authn.Authenticator, authorization string) (authn.Caller, error) {
	r := httptest.NewRequest(http.MethodPut, "https://frontend.example/subscriptions/1?api-version=2.0", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return a.Authenticate(context.Background(), r)
}

// TestTokens checks that only tokens of the issuer, for this service, of ARM's application and within their validity
// period are accepted, both by a TokenVerifier and by a Sidecar that uses one.
func TestTokens(t *testing.T) {
	i := newIssuer(t)
	other := newIssuer(t)
	tokens := i.tokens()
	sidecar := must.Get(authn.NewSidecar(startSidecar(t, tokens)))(t)
	hs256 := must.Get(jwt.NewWithClaims(jwt.SigningMethodHS256, i.claims(nil)).SignedString([]byte("secret")))(t)
	unsigned := must.Get(jwt.NewWithClaims(jwt.SigningMethodNone, i.claims(nil)).SignedString(jwt.UnsafeAllowNoneSignatureType))(t)
	good := i.sign(t, "first", nil)
	twice := i.signClaims(t, "first", repeated{i.claims(nil)})
	cases := map[string]struct {
		reason, authorization string
		want                  apierror.Kind
		accepted              bool
		challenge             string
	}{
		"valid":            {reason: "ARM is accepted", authorization: "Bearer " + good, accepted: true},
		"repeated":         {reason: "a cached token is accepted", authorization: "bearer " + good, accepted: true},
		"version 2":        {reason: "tokens of version 2 have the application in azp", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"appid": nil, "azp": arm}), accepted: true},
		"no header":        {reason: "a token is required", want: apierror.Unauthenticated, challenge: `Bearer realm="Microsoft.RedHatOpenShift"`},
		"other scheme":     {reason: "the scheme must be Bearer", authorization: "Basic YTpi", want: apierror.Unauthenticated, challenge: "invalid_"},
		"no token":         {reason: "the token must not be empty", authorization: "Bearer ", want: apierror.Unauthenticated, challenge: "invalid_"},
		"not a token":      {reason: "the token must be a JWT", authorization: "Bearer a.b.c", want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"modified":         {reason: "the signature must match", authorization: "Bearer " + good[:len(good)-8] + "AAAAAAAA", want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other issuer":     {reason: "the key must be the issuer's", authorization: "Bearer " + other.sign(t, "first", jwt.MapClaims{"iss": i.URL}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other iss":        {reason: "iss must name the issuer", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"iss": other.URL}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other aud":        {reason: "aud must name this service", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"aud": "https://management.azure.com"}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"expired":          {reason: "the token must not be expired", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": time.Now().Add(-2 * time.Minute).Unix()}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"no exp":           {reason: "the token must expire", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": nil}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"not yet valid":    {reason: "the token must be valid already", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"without oid":      {reason: "the token must name a principal", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"oid": nil}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"claim twice":      {reason: "services must not use different values of a claim", authorization: "Bearer " + twice, want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"symmetric":        {reason: "only the issuer's signing method is accepted", authorization: "Bearer " + hs256, want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"unsigned":         {reason: "the token must be signed", authorization: "Bearer " + unsigned, want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"large":            {reason: "the size is limited", authorization: "Bearer " + strings.Repeat("a", 1<<20), want: apierror.Unauthenticated, challenge: "invalid_"},
		"other app":        {reason: "the application must be ARM's", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"appid": "customer"}), want: apierror.PermissionDenied},
		"many audiences":   {reason: "one of the audiences is this service", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"aud": []string{"x", audience}}), accepted: true},
		"wrong claim type": {reason: "exp must be a number", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": "tomorrow"}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
	}
	for kind, authenticator := range map[string]authn.Authenticator{"verifier": tokens, "sidecar": sidecar} {
		for name, tc := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) {
				caller, err := authenticate(authenticator, tc.authorization)
				if tc.accepted {
					if err != nil || !reflect.DeepEqual(caller, authn.Caller{TenantID: tenant, AppID: arm, ObjectID: object}) {
						t.Errorf("%s: %+v, %v", tc.reason, caller, err)
					}
					return
				}
				if err == nil || apierror.KindOf(err) != tc.want {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				challenge := authn.Challenge(err)
				if challenge == "" != (tc.want != apierror.Unauthenticated) || kind == "verifier" && !strings.Contains(challenge, tc.challenge) {
					t.Errorf("%s: the challenge is %q", tc.reason, challenge)
				}
				for _, secret := range strings.FieldsFunc(strings.TrimPrefix(tc.authorization, "Bearer "), func(r rune) bool { return r == '.' }) {
					if len(secret) > 8 && strings.Contains(err.Error(), secret) {
						t.Errorf("the error contains a part of the token: %v", err)
					}
				}
			})
		}
	}
}

// startSidecar starts a server that responds to checks as a MISE sidecar does, with the decisions of tokens.
func startSidecar(t testing.TB, tokens authn.Authenticator) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/ValidateRequest" || r.Header.Get("Original-Method") != http.MethodPut ||
			r.Header.Get("Original-Uri") != "https://frontend.example/subscriptions/1?api-version=2.0" || r.Header.Get("X-Forwarded-For") == "" {
			t.Errorf("check request %s %s %v", r.Method, r.URL, r.Header)
		}
		caller, err := tokens.Authenticate(r.Context(), r)
		if err != nil {
			w.WriteHeader(apierror.KindOf(err).HTTPStatus())
			return
		}
		for claim, value := range map[string]string{"tid": caller.TenantID, "appid": caller.AppID, "oid": caller.ObjectID} {
			if r.Header.Get("Return-Subject-Token-Claim-"+claim) == "1" {
				w.Header().Set("Subject-Token-Claim-"+claim, value)
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/ValidateRequest"
}

// TestUnreachableIssuer checks that requests are rejected as Unavailable until the keys were fetched once, and that
// fetched keys stay in use while the issuer is unreachable.
func TestUnreachableIssuer(t *testing.T) {
	i := newIssuer(t)
	i.down.Store(true)
	tokens := i.tokens()
	if err := tokens.Ready(t.Context()); err == nil {
		t.Error("ready without keys")
	}
	if _, err := authenticate(tokens, "Bearer "+i.sign(t, "first", nil)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("without keys Authenticate returned %v", err)
	}
	if err := tokens.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("Ready returned %v, want the status of the issuer", err)
	}

	i.down.Store(false)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { tokens.Run(ctx) })
	defer wg.Wait()
	defer stop()
	eventually.Soon(t, "the keys are fetched", func() error { return tokens.Ready(t.Context()) })
	if _, err := authenticate(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Error(err)
	}
	i.down.Store(true)
	if _, err := authenticate(tokens, "Bearer "+i.sign(t, "first", jwt.MapClaims{"jti": "other"})); err != nil {
		t.Errorf("a fetched key was not used while the issuer was unreachable: %v", err)
	}
}

// TestRotation checks that a token with an unknown key causes a fetch of the keys, but not one fetch per token.
func TestRotation(t *testing.T) {
	i := newIssuer(t)
	now := time.Now()
	var ahead atomic.Int64
	tokens := authn.NewTokenVerifier(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{arm}, Client: i.Client(),
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	must.Get(authenticate(tokens, "Bearer "+i.sign(t, "first", nil)))(t)
	i.add(t, "second")
	second := "Bearer " + i.sign(t, "second", nil)
	for range 3 {
		if _, err := authenticate(tokens, second); apierror.KindOf(err) != apierror.Unauthenticated {
			t.Errorf("a key that was not fetched yet: %v", err)
		}
	}
	if fetches := i.fetches.Load(); fetches != 1 {
		t.Errorf("the keys were fetched %d times, want once", fetches)
	}
	ahead.Store(int64(10 * time.Second))
	if _, err := authenticate(tokens, second); err != nil || i.fetches.Load() != 2 {
		t.Errorf("the new key was not accepted: %v after %d fetches", err, i.fetches.Load())
	}
}

// TestIssuerWithTrailingSlash checks an issuer such as https://sts.windows.net/<tenant>/, the one of Entra's version 1
// tokens. Its configuration has the same name.
func TestIssuerWithTrailingSlash(t *testing.T) {
	i := newIssuer(t)
	i.suffix = "/"
	tokens := authn.NewTokenVerifier(authn.TokenOptions{Issuer: i.URL + "/", Audience: audience, ClientIDs: []string{arm}, Client: i.Client()})
	if _, err := authenticate(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Error(err)
	}
}

// TestFetchOutlivesCanceledRequest checks that one fetch of the keys serves all requests that wait for it, even if the
// request that started it is canceled.
func TestFetchOutlivesCanceledRequest(t *testing.T) {
	i := newIssuer(t)
	i.fetching = make(chan struct{})
	tokens := i.tokens()
	token := "Bearer " + i.sign(t, "first", nil)
	ctx, cancel := context.WithCancel(t.Context())
	canceled, result := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(canceled)
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		request.Header.Set("Authorization", token)
		_, _ = tokens.Authenticate(ctx, request)
	}()
	<-i.fetching
	go func() {
		_, err := authenticate(tokens, token)
		result <- err
	}()
	cancel()
	i.fetching <- struct{}{}
	if err := <-result; err != nil {
		t.Errorf("the waiting request was rejected: %v", err)
	}
	<-canceled
}

// TestUnusableKeyIsIgnored publishes a key that is too small, before the first token and beside a key that is added later. Only tokens of the small key are
// refused. The key is counted.
func TestUnusableKeyIsIgnored(t *testing.T) {
	i := newIssuer(t)
	i.addOf(t, "small", 1024)
	now, metrics := time.Now(), prometheus.NewRegistry()
	var ahead atomic.Int64
	tokens := authn.NewTokenVerifier(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{arm}, Client: i.Client(), Metrics: metrics,
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	accepted := func(key string) bool {
		_, err := authenticate(tokens, "Bearer "+i.sign(t, key, nil))
		if err != nil && apierror.KindOf(err) != apierror.Unauthenticated {
			t.Errorf("a token of the key %s: %v", key, err)
		}
		return err == nil
	}
	if !accepted("first") || accepted("small") {
		t.Error("not exactly the tokens of the key first are accepted")
	}
	i.add(t, "second")
	ahead.Store(int64(10 * time.Second))
	if !accepted("second") || !accepted("first") {
		t.Error("tokens of a usable key are refused")
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader("# HELP authn_issuer_keys_ignored Published keys of the token issuer that cannot be used. Tokens that they signed are refused.\n"+
		"# TYPE authn_issuer_keys_ignored gauge\nauthn_issuer_keys_ignored 1\n")); err != nil {
		t.Error(err)
	}
}

// TestUnknownKeyWhileIssuerIsUnreachable checks that a token is not rejected as invalid if its key cannot be fetched.
func TestUnknownKeyWhileIssuerIsUnreachable(t *testing.T) {
	i := newIssuer(t)
	now := time.Now()
	var ahead atomic.Int64
	tokens := authn.NewTokenVerifier(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{arm}, Client: i.Client(),
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	must.Get(authenticate(tokens, "Bearer "+i.sign(t, "first", nil)))(t)
	i.add(t, "second")
	i.down.Store(true)
	ahead.Store(int64(10 * time.Second))
	for range 2 { // the second attempt does not fetch, because of the minimum interval
		if _, err := authenticate(tokens, "Bearer "+i.sign(t, "second", nil)); apierror.KindOf(err) != apierror.Unavailable {
			t.Errorf("Authenticate returned %v, want Unavailable", err)
		}
	}
	if _, err := authenticate(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Errorf("a cached key was not used: %v", err)
	}
}

// TestSidecarRejectsOtherResponses checks that every response of the sidecar except 200 rejects the request.
func TestSidecarRejectsOtherResponses(t *testing.T) {
	for _, endpoint := range []string{"", "localhost:5000", "ftp://x/y"} {
		if _, err := authn.NewSidecar(endpoint); err == nil {
			t.Errorf("NewSidecar accepted %q", endpoint)
		}
	}
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	sidecar := must.Get(authn.NewSidecar(server.URL))(t)
	for code, want := range map[int]apierror.Kind{
		http.StatusUnauthorized: apierror.Unauthenticated, http.StatusBadRequest: apierror.Unauthenticated, http.StatusFound: apierror.Unauthenticated,
		http.StatusForbidden: apierror.PermissionDenied, http.StatusInternalServerError: apierror.Unavailable, http.StatusTooManyRequests: apierror.Unavailable,
	} {
		status = code
		if _, err := authenticate(sidecar, "PoP x"); err == nil || apierror.KindOf(err) != want {
			t.Errorf("sidecar status %d: %v", code, err)
		}
	}
	if err := sidecar.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	if _, err := authenticate(sidecar, "PoP x"); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("unreachable sidecar: %v, want Unavailable", err)
	}
	if err := sidecar.Ready(t.Context()); err == nil {
		t.Error("ready without a sidecar")
	}
}

// FuzzToken checks that only the issuer's tokens are accepted.
func FuzzToken(f *testing.F) {
	i := newIssuer(f)
	tokens := i.tokens()
	good := i.sign(f, "first", nil)
	f.Add("Bearer " + good)
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.")
	f.Add("Bearer " + i.sign(f, "first", jwt.MapClaims{"aud": 7, "exp": 1e300}))
	f.Fuzz(func(t *testing.T, authorization string) {
		_, err := authenticate(tokens, authorization)
		scheme, text, _ := strings.Cut(authorization, " ")
		if valid := strings.EqualFold(scheme, "Bearer") && text == good; valid != (err == nil) {
			t.Fatalf("%v", err)
		}
		var e *apierror.Error
		if err != nil && (!errors.As(err, &e) || e.Kind == apierror.Internal) {
			t.Fatalf("an internal error: %v", err)
		}
	})
}
