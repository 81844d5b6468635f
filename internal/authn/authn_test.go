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

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

const (
	audience = "https://provider.example"
	arm      = "797f4846-ba00-4fd7-ba43-dac1f8f63013"
	object   = "4f2f6d57-7f0c-45b5-8a26-93c1a3f3a6d2"
	tenant   = "33e01921-4d64-4f8c-a055-5bdaffd5e33d"
)

// issuer publishes its keys as Entra does, and signs what it is told to.
type issuer struct {
	*httptest.Server
	mu    sync.Mutex
	keys  map[string]*rsa.PrivateKey
	reads atomic.Int64
	down  atomic.Bool
	// suffix is what its name has behind its URL. reading, when not nil, is told of each reading of the keys, and holds it up until
	// it is told something in turn.
	suffix  string
	reading chan struct{}
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
			i.reads.Add(1)
			if i.reading != nil {
				i.reading <- struct{}{}
				<-i.reading
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
	list := []any{map[string]any{"kty": "EC", "kid": "another kind of key"}}
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
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = key
}

// claims are good ones with changes.
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

func (i *issuer) sign(t testing.TB, id string, changes jwt.MapClaims) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, i.claims(changes))
	token.Header["kid"] = id
	signed, err := token.SignedString(i.keys[id])
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func (i *issuer) tokens() *authn.Tokens {
	return authn.NewTokens(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{strings.ToUpper(arm)}, Client: i.Client()})
}

func ask(a authn.Authenticator, authorization string) (authn.Caller, error) {
	r := httptest.NewRequest(http.MethodPut, "https://frontend.example/subscriptions/1?api-version=2.0", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return a.Authenticate(context.Background(), r)
}

// TestTokens: only a token of the issuer, for this service, of ARM's own application, within its life, is let in; by the
// stand-in itself, and by one that is asked as a sidecar is.
func TestTokens(t *testing.T) {
	i := newIssuer(t)
	stranger := newIssuer(t)
	tokens := i.tokens()
	sidecar, err := authn.NewSidecar(standIn(t, tokens))
	if err != nil {
		t.Fatal(err)
	}
	hs256, err := jwt.NewWithClaims(jwt.SigningMethodHS256, i.claims(nil)).SignedString([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, i.claims(nil)).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	good := i.sign(t, "first", nil)
	cases := map[string]struct {
		reason, authorization string
		want                  apierror.Kind
		in                    bool
		challenge             string
	}{
		"good":             {reason: "ARM is let in", authorization: "Bearer " + good, in: true},
		"again":            {reason: "and again with the same token", authorization: "bearer " + good, in: true},
		"version 2":        {reason: "tokens of version 2 name the application otherwise", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"appid": nil, "azp": arm}), in: true},
		"nothing":          {reason: "a token is needed", want: apierror.Unauthenticated, challenge: `Bearer realm="Microsoft.RedHatOpenShift"`},
		"other scheme":     {reason: "a bearer token", authorization: "Basic YTpi", want: apierror.Unauthenticated, challenge: "invalid_"},
		"no token":         {reason: "a bearer token", authorization: "Bearer ", want: apierror.Unauthenticated, challenge: "invalid_"},
		"not a token":      {reason: "a JWT", authorization: "Bearer a.b.c", want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"changed":          {reason: "as it was signed", authorization: "Bearer " + good[:len(good)-8] + "AAAAAAAA", want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other issuer":     {reason: "by the issuer's key", authorization: "Bearer " + stranger.sign(t, "first", jwt.MapClaims{"iss": i.URL}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other iss":        {reason: "in the issuer's name", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"iss": stranger.URL}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"other aud":        {reason: "for this service", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"aud": "https://management.azure.com"}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"expired":          {reason: "not expired", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": time.Now().Add(-2 * time.Minute).Unix()}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"endless":          {reason: "with an end", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": nil}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"later":            {reason: "already valid", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"without oid":      {reason: "of a principal", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"oid": nil}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"symmetric":        {reason: "with the issuer's method", authorization: "Bearer " + hs256, want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"unsigned":         {reason: "and signed at all", authorization: "Bearer " + unsigned, want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
		"large":            {reason: "of a size that a token has", authorization: "Bearer " + strings.Repeat("a", 1<<20), want: apierror.Unauthenticated, challenge: "invalid_"},
		"other app":        {reason: "of ARM's application", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"appid": "customer"}), want: apierror.PermissionDenied},
		"many audiences":   {reason: "one of them is this service", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"aud": []string{"x", audience}}), in: true},
		"numbers as texts": {reason: "claims have their types", authorization: "Bearer " + i.sign(t, "first", jwt.MapClaims{"exp": "tomorrow"}), want: apierror.Unauthenticated, challenge: `error="invalid_token"`},
	}
	for by, authenticator := range map[string]authn.Authenticator{"itself": tokens, "sidecar": sidecar} {
		for name, tc := range cases {
			t.Run(by+"/"+name, func(t *testing.T) {
				caller, err := ask(authenticator, tc.authorization)
				if tc.in {
					if err != nil || !reflect.DeepEqual(caller, authn.Caller{TenantID: tenant, AppID: arm, ObjectID: object}) {
						t.Errorf("%s: %+v, %v", tc.reason, caller, err)
					}
					return
				}
				if err == nil || apierror.KindOf(err) != tc.want {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				challenge := authn.Challenge(err)
				if challenge == "" != (tc.want != apierror.Unauthenticated) || by == "itself" && !strings.Contains(challenge, tc.challenge) {
					t.Errorf("%s: the challenge is %q", tc.reason, challenge)
				}
				for _, secret := range strings.FieldsFunc(strings.TrimPrefix(tc.authorization, "Bearer "), func(r rune) bool { return r == '.' }) {
					if len(secret) > 8 && strings.Contains(err.Error(), secret) {
						t.Errorf("the error tells a part of the token: %v", err)
					}
				}
			})
		}
	}
}

// standIn answers checks as a MISE sidecar does, by what tokens decides.
func standIn(t testing.TB, tokens authn.Authenticator) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/ValidateRequest" || r.Header.Get("Original-Method") != http.MethodPut ||
			r.Header.Get("Original-Uri") != "https://frontend.example/subscriptions/1?api-version=2.0" || r.Header.Get("X-Forwarded-For") == "" {
			t.Errorf("asked %s %s %v", r.Method, r.URL, r.Header)
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

// TestKeys: while the issuer cannot be asked nobody is let in and the reason is said; a new key is found when a token
// names it; keys that were read outlive the issuer.
func TestKeys(t *testing.T) {
	i := newIssuer(t)
	i.down.Store(true)
	tokens := i.tokens()
	if err := tokens.Ready(t.Context()); err == nil {
		t.Error("ready without keys")
	}
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("without keys it answered %v", err)
	}
	if err := tokens.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("not ready because of %v", err)
	}

	i.down.Store(false)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { tokens.Run(ctx) })
	defer wg.Wait()
	defer stop()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for tokens.Ready(t.Context()) != nil {
		select {
		case <-deadline:
			t.Fatal(tokens.Ready(t.Context()))
		case <-tick.C:
		}
	}
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Error(err)
	}
	i.down.Store(true)
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", jwt.MapClaims{"jti": "another"})); err != nil {
		t.Errorf("the issuer went away, and the keys with it: %v", err)
	}
}

// TestRotation: a token with a key that is not known makes the keys be read again, but not one reading for each token.
func TestRotation(t *testing.T) {
	i := newIssuer(t)
	now := time.Now()
	var ahead atomic.Int64
	tokens := authn.NewTokens(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{arm}, Client: i.Client(),
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Fatal(err)
	}
	i.add(t, "second")
	second := "Bearer " + i.sign(t, "second", nil)
	for range 3 {
		if _, err := ask(tokens, second); apierror.KindOf(err) != apierror.Unauthenticated {
			t.Errorf("a key that was not read yet: %v", err)
		}
	}
	if reads := i.reads.Load(); reads != 1 {
		t.Errorf("the keys were read %d times", reads)
	}
	ahead.Store(int64(10 * time.Second))
	if _, err := ask(tokens, second); err != nil || i.reads.Load() != 2 {
		t.Errorf("the new key was not found: %v after %d readings", err, i.reads.Load())
	}
}

// TestAnIssuerWhoseNameEndsWithASlash: the issuer of Entra's tokens of version 1 is https://sts.windows.net/<tenant>/, and its
// configuration says so, too.
func TestAnIssuerWhoseNameEndsWithASlash(t *testing.T) {
	i := newIssuer(t)
	i.suffix = "/"
	tokens := authn.NewTokens(authn.TokenOptions{Issuer: i.URL + "/", Audience: audience, ClientIDs: []string{arm}, Client: i.Client()})
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Error(err)
	}
}

// TestAReadingOutlivesWhoBeganIt: the keys are read once for all that wait for them. That the first of these gives up must not have
// the others refused.
func TestAReadingOutlivesWhoBeganIt(t *testing.T) {
	i := newIssuer(t)
	i.reading = make(chan struct{})
	tokens := i.tokens()
	token := "Bearer " + i.sign(t, "first", nil)
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp, answered := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(gaveUp)
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		request.Header.Set("Authorization", token)
		_, _ = tokens.Authenticate(ctx, request)
	}()
	<-i.reading
	go func() {
		_, err := ask(tokens, token)
		answered <- err
	}()
	giveUp()
	i.reading <- struct{}{}
	if err := <-answered; err != nil {
		t.Errorf("who waited was answered %v", err)
	}
	<-gaveUp
}

// TestANewKeyWhileTheIssuerIsAway: a token whose key cannot be looked for is not a wrong one.
func TestANewKeyWhileTheIssuerIsAway(t *testing.T) {
	i := newIssuer(t)
	now := time.Now()
	var ahead atomic.Int64
	tokens := authn.NewTokens(authn.TokenOptions{Issuer: i.URL, Audience: audience, ClientIDs: []string{arm}, Client: i.Client(),
		Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Fatal(err)
	}
	i.add(t, "second")
	i.down.Store(true)
	ahead.Store(int64(10 * time.Second))
	for range 2 { // the second is not looked for again so soon
		if _, err := ask(tokens, "Bearer "+i.sign(t, "second", nil)); apierror.KindOf(err) != apierror.Unavailable {
			t.Errorf("answered %v", err)
		}
	}
	if _, err := ask(tokens, "Bearer "+i.sign(t, "first", nil)); err != nil {
		t.Errorf("a key that is known is not enough any more: %v", err)
	}
}

// TestSidecar: what is not a decision lets nobody in.
func TestSidecar(t *testing.T) {
	for _, endpoint := range []string{"", "localhost:5000", "ftp://x/y"} {
		if _, err := authn.NewSidecar(endpoint); err == nil {
			t.Errorf("%q was taken", endpoint)
		}
	}
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	sidecar, err := authn.NewSidecar(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for answered, want := range map[int]apierror.Kind{
		http.StatusUnauthorized: apierror.Unauthenticated, http.StatusBadRequest: apierror.Unauthenticated, http.StatusFound: apierror.Unauthenticated,
		http.StatusForbidden: apierror.PermissionDenied, http.StatusInternalServerError: apierror.Unavailable, http.StatusTooManyRequests: apierror.Unavailable,
	} {
		status = answered
		if _, err := ask(sidecar, "PoP x"); err == nil || apierror.KindOf(err) != want {
			t.Errorf("the sidecar answered %d: %v", answered, err)
		}
	}
	if err := sidecar.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	if _, err := ask(sidecar, "PoP x"); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("the sidecar is gone: %v", err)
	}
	if err := sidecar.Ready(t.Context()); err == nil {
		t.Error("ready without a sidecar")
	}
}

// FuzzToken: no bytes but the issuer's own are let in.
func FuzzToken(f *testing.F) {
	i := newIssuer(f)
	tokens := i.tokens()
	good := i.sign(f, "first", nil)
	f.Add("Bearer " + good)
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.")
	f.Add("Bearer " + i.sign(f, "first", jwt.MapClaims{"aud": 7, "exp": 1e300}))
	f.Fuzz(func(t *testing.T, authorization string) {
		_, err := ask(tokens, authorization)
		scheme, text, _ := strings.Cut(authorization, " ")
		if mine := strings.EqualFold(scheme, "Bearer") && text == good; mine != (err == nil) {
			t.Fatalf("%v", err)
		}
		var e *apierror.Error
		if err != nil && (!errors.As(err, &e) || e.Kind == apierror.Internal) {
			t.Fatalf("an error of ours: %v", err)
		}
	})
}
