package intent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/jwt"
	"google.golang.org/grpc/metadata"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	issuer   = "spiffe://test/ns/admin/sa/admin"
	audience = "spiffe://test"
)

// publisher serves the keys of a signer, as admin does.
type publisher struct {
	*httptest.Server
	signer  atomic.Pointer[Signer]
	fetches atomic.Int64
	down    atomic.Bool
}

func publish(t testing.TB, signer *Signer) *publisher {
	t.Helper()
	p := &publisher{}
	p.signer.Store(signer)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		if p.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(p.signer.Load().KeySet())
	}))
	t.Cleanup(p.Close)
	return p
}

// verifier returns a verifier whose clock is ahead of the real one by the duration in ahead.
func (p *publisher) verifier(ahead *atomic.Int64) *Verifier {
	return NewVerifier(VerifierOptions{Issuer: issuer, Audience: audience, KeysURL: p.URL, Client: p.Client(),
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
}

func newTestSigner(t testing.TB) *Signer {
	t.Helper()
	return must.Get(NewSigner(issuer, audience))(t)
}

func sign(t testing.TB, signer *Signer, i *Intent) string {
	t.Helper()
	return must.Get(signer.Sign(i))(t)
}

// request is a call with a map, whose encoding has no fixed order without the deterministic encoder.
func request() *clusterservicev1.RegisterProvisionShardRequest {
	return &clusterservicev1.RegisterProvisionShardRequest{Name: "mgmt-1", Capacity: 10, Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}
}

const method = clusterservicev1.ClusterService_RegisterProvisionShard_FullMethodName

// asked returns a valid intent with all fields.
func asked(t testing.TB) *Intent {
	t.Helper()
	call := must.Get(NewCall(method, request()))(t)
	parameters := must.Get(DigestJSON([]byte(`{"name": "mgmt-1"}`)))(t)
	now := time.Now().UTC().Truncate(time.Second)
	return &Intent{OperationID: "8f2c6a38-6f0e-4a63-9a1f-0f4f4b8f1c11", ObjectID: "alice", TenantID: "tenant", Name: "alice@example.com", Roles: []string{"reader", "operator"},
		Elevation: Elevation{ID: "elevation", Role: "operator", ExpiresAt: now.Add(time.Hour)}, Reason: "it is stuck \"here\" – 界", Ticket: "INC-1", Action: "shards.register",
		Target: Target{Kind: "provisionShard", ID: "mgmt-1", ResourceID: "/subscriptions/1", ClusterUID: "uid"}, Parameters: parameters, Call: call,
		IssuedAt: now, ExpiresAt: now.Add(30 * time.Minute)}
}

func TestVerifyReturnsSignedIntent(t *testing.T) {
	signer := newTestSigner(t)
	var ahead atomic.Int64
	for name, change := range map[string]func(*Intent){"all fields": func(*Intent) {}, "without a call": func(i *Intent) { i.Call, i.Roles = nil, []string{} },
		"emergency": func(i *Intent) { i.Elevation.Emergency = true }} {
		want := asked(t)
		change(want)
		got, err := publish(t, signer).verifier(&ahead).Verify(t.Context(), sign(t, signer, want))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestOnlyIntentsOfAdminAreAccepted checks signature, key, type, issuer, audience and times. An error never contains a part of
// the intent.
func TestOnlyIntentsOfAdminAreAccepted(t *testing.T) {
	signer, other := newTestSigner(t), newTestSigner(t)
	var ahead atomic.Int64
	verifier := publish(t, signer).verifier(&ahead)
	good := sign(t, signer, asked(t))
	with := func(change func(*Signer)) string {
		changed := *signer
		change(&changed)
		return sign(t, &changed, asked(t))
	}
	parts := strings.Split(good, ".")
	part := func(content string) string { return base64.RawURLEncoding.EncodeToString([]byte(content)) }
	payload := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	var header struct {
		ID string `json:"kid"`
	}
	must.Do(t, decodePart(good, 0, &header))
	future := asked(t)
	future.IssuedAt, future.ExpiresAt = future.IssuedAt.Add(10*time.Minute), future.IssuedAt.Add(20*time.Minute)
	for name, tc := range map[string]struct{ reason, signed string }{
		"empty":              {"an intent is required", ""},
		"not a JWS":          {"three parts are required", "a.b"},
		"large":              {"the size is limited", good + strings.Repeat("A", maxSize)},
		"unsigned":           {"the algorithm must be ES256", part(`{"alg":"none","kid":"`+header.ID+`"}`) + "." + parts[1] + "."},
		"symmetric":          {"the algorithm must be ES256", part(`{"alg":"HS256","kid":"`+header.ID+`"}`) + "." + parts[1] + "." + parts[2]},
		"without key ID":     {"the key must be named", part(`{"alg":"ES256"}`) + "." + parts[1] + "." + parts[2]},
		"other key":          {"the key must be published", sign(t, other, asked(t))},
		"other key, same ID": {"the signature must be of the named key", parts[0] + "." + parts[1] + "." + strings.Split(sign(t, other, asked(t)), ".")[2]},
		"changed claims":     {"the signature covers the claims", parts[0] + "." + part(strings.Replace(string(payload), "alice", "mallory", 1)) + "." + parts[2]},
		"changed header":     {"the signature covers the header", part(`{"alg":"ES256","typ":"`+typeHeader+`","kid":"`+header.ID+`","x":1}`) + "." + parts[1] + "." + parts[2]},
		"other region":       {"the audience is the region", with(func(s *Signer) { s.audience = "spiffe://other" })},
		"other issuer":       {"the issuer is admin", with(func(s *Signer) { s.issuer = "spiffe://test/ns/frontend/sa/frontend" })},
		"future":             {"the time of issue is not in the future", sign(t, signer, future)},
		"other type":         {"another JWT of the same key is not an intent", otherType(t, signer)},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := verifier.Verify(t.Context(), tc.signed)
			if e := apierror.As(err); i != nil || e == nil || e.Kind != apierror.PermissionDenied || e.Reason != ReasonInvalid {
				t.Fatalf("%s: got %v and %v", tc.reason, i, err)
			}
			for _, secret := range strings.Split(tc.signed, ".") {
				if len(secret) > 8 && strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains a part of the intent: %v", err)
				}
			}
		})
	}
}

// otherType returns a JWT with the claims of an intent and without its type.
func otherType(t testing.TB, signer *Signer) string {
	t.Helper()
	i := asked(t)
	raw := must.Get(jwt.NewRawJWT(&jwt.RawJWTOptions{Issuer: &signer.issuer, Audience: &signer.audience, Subject: &i.ObjectID, JWTID: &i.OperationID, IssuedAt: &i.IssuedAt, ExpiresAt: &i.ExpiresAt}))(t)
	return must.Get(signer.current().signer.SignAndEncode(raw))(t)
}

// TestExpiredIntentShowsWhoAsked checks that an intent is refused from its end on, and that the audit record of the refusal can
// name the engineer. A forged expired intent shows nobody.
func TestExpiredIntentShowsWhoAsked(t *testing.T) {
	signer := newTestSigner(t)
	var ahead atomic.Int64
	verifier := publish(t, signer).verifier(&ahead)
	signed := sign(t, signer, asked(t))
	must.Get(verifier.Verify(t.Context(), signed))(t)
	ahead.Store(int64(31 * time.Minute))
	i, err := verifier.Verify(t.Context(), signed)
	if e := apierror.As(err); e == nil || e.Reason != ReasonExpired || i == nil || i.ObjectID != "alice" {
		t.Errorf("got %v and %v", i, err)
	}
	parts := strings.Split(signed, ".")
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"mallory","exp":1}`)) + "." + parts[2]
	if i, err := verifier.Verify(t.Context(), forged); i != nil || apierror.As(err).Reason != ReasonInvalid {
		t.Errorf("a forged intent: got %v and %v", i, err)
	}
}

// TestIntentEndsWithElevation checks that no intent is signed that is valid longer than the elevation, or than MaxValidity.
func TestIntentEndsWithElevation(t *testing.T) {
	signer := newTestSigner(t)
	for reason, change := range map[string]func(*Intent){
		"longer than the elevation": func(i *Intent) { i.ExpiresAt = i.Elevation.ExpiresAt.Add(time.Second) },
		"longer than the limit": func(i *Intent) {
			i.ExpiresAt, i.Elevation.ExpiresAt = i.IssuedAt.Add(2*time.Hour), i.IssuedAt.Add(3*time.Hour)
		},
		"without an operation": func(i *Intent) { i.OperationID = "" },
		"without an engineer":  func(i *Intent) { i.ObjectID = "" },
		"without an elevation": func(i *Intent) { i.Elevation.ID = "" },
		"without an action":    func(i *Intent) { i.Action = "" },
		"without parameters":   func(i *Intent) { i.Parameters = "" },
	} {
		i := asked(t)
		change(i)
		if signed, err := signer.Sign(i); err == nil {
			t.Errorf("%s: signed %s", reason, signed)
		}
	}
}

// TestDigest checks that an intent allows exactly the signed call and parameters.
func TestDigest(t *testing.T) {
	i := asked(t)
	for range 20 { // the order of a map differs between encodings
		if !i.AllowsCall(method, request()) {
			t.Fatal("the signed call is not allowed")
		}
	}
	changed := request()
	changed.Labels["a"] = "2"
	for reason, allowed := range map[string]bool{
		"another field":    i.AllowsCall(method, changed),
		"another method":   i.AllowsCall(clusterservicev1.ClusterService_DrainProvisionShard_FullMethodName, request()),
		"another type":     i.AllowsCall(method, &clusterservicev1.DrainProvisionShardRequest{Name: "mgmt-1"}),
		"no call":          (&Intent{}).AllowsCall(method, request()),
		"other parameters": i.AllowsParameters([]byte(`{"name":"mgmt-2"}`)),
		"no parameters":    i.AllowsParameters(nil),
		"more data":        i.AllowsParameters([]byte(`{"name":"mgmt-1"}{}`)),
	} {
		if allowed {
			t.Errorf("%s is allowed", reason)
		}
	}
	unknown := request()
	unknown.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x01, 'x'})
	if i.AllowsCall(method, unknown) {
		t.Error("a request with a field that the verifier does not know is allowed")
	}
	for _, same := range []string{`{"name":"mgmt-1"}`, "{ \"name\"\n:\"mgmt-1\"}", `{"name":"mgmt\u002d1"}`} {
		if !i.AllowsParameters([]byte(same)) {
			t.Errorf("%s has another digest", same)
		}
	}
	one, _ := DigestJSON([]byte(`{"a":1,"b":[10000000000000000001]}`))
	two, _ := DigestJSON([]byte(`{"b":[10000000000000000001],"a":1}`))
	three, _ := DigestJSON([]byte(`{"b":[10000000000000000002],"a":1}`))
	if one != two || two == three {
		t.Errorf("digests %s, %s and %s", one, two, three)
	}
}

// TestKeysOutliveAdmin checks that intents are verified while admin is away, for as long as the keys may be used, and that an
// intent is not refused permanently if its key cannot be fetched.
func TestKeysOutliveAdmin(t *testing.T) {
	signer := newTestSigner(t)
	p := publish(t, signer)
	var ahead atomic.Int64
	verifier := p.verifier(&ahead)
	p.down.Store(true)
	if _, err := verifier.Verify(t.Context(), sign(t, signer, asked(t))); apierror.KindOf(err) != apierror.Unavailable || apierror.As(err).Reason != ReasonUnverifiable {
		t.Errorf("without keys: %v", err)
	}
	p.down.Store(false)
	ahead.Store(int64(10 * time.Second))
	must.Get(verifier.Verify(t.Context(), sign(t, signer, asked(t))))(t)
	p.down.Store(true)
	ahead.Store(int64(20 * time.Minute))
	if _, err := verifier.Verify(t.Context(), sign(t, signer, asked(t))); err != nil {
		t.Errorf("with fetched keys: %v", err)
	}
	if _, err := verifier.Verify(t.Context(), sign(t, newTestSigner(t), asked(t))); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("with a key that may be new: %v", err)
	}
	ahead.Store(int64(25 * time.Hour))
	if _, err := verifier.Verify(t.Context(), sign(t, signer, asked(t))); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("with outdated keys: %v", err)
	}
}

// TestUnknownKeysCauseFewFetches checks that intents with invented key IDs do not make a server fetch the keys for each.
func TestUnknownKeysCauseFewFetches(t *testing.T) {
	p := publish(t, newTestSigner(t))
	var ahead atomic.Int64
	verifier, other := p.verifier(&ahead), newTestSigner(t)
	for range 20 {
		if _, err := verifier.Verify(t.Context(), sign(t, other, asked(t))); err == nil {
			t.Fatal("an intent with an unknown key was accepted")
		}
	}
	if fetches := p.fetches.Load(); fetches != 1 {
		t.Errorf("%d fetches, want 1", fetches)
	}
}

// TestRotation performs the steps of a rotation while a Signer runs: add a key, make it primary, remove the former one.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.key")
	must.Do(t, CreateKeys(path))
	signer := must.Get(LoadSigner(path, issuer, audience))(t)
	created := must.Get(keyfile.List(path))(t)
	p := publish(t, signer)
	var ahead atomic.Int64
	verifier := p.verifier(&ahead)
	old := sign(t, signer, asked(t))
	must.Get(verifier.Verify(t.Context(), old))(t)
	added := must.Get(keyfile.Add(path))(t)
	if published, err := parseKeys(signer.KeySet()); err != nil || len(published.ids) != 2 {
		t.Errorf("the added key is not published: %v, %v", published, err)
	}
	must.Do(t, keyfile.Promote(path, added))
	ahead.Store(int64(10 * time.Second)) // the next fetch is permitted
	for reason, signed := range map[string]string{"the former key": old, "the new key": sign(t, signer, asked(t))} {
		if _, err := verifier.Verify(t.Context(), signed); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	must.Do(t, keyfile.Remove(path, created[0].ID))
	if _, err := p.verifier(&ahead).Verify(t.Context(), old); apierror.As(err).Reason != ReasonInvalid {
		t.Errorf("a removed key: %v", err)
	}
	if _, err := p.verifier(&ahead).Verify(t.Context(), sign(t, signer, asked(t))); err != nil {
		t.Errorf("the new key after the removal: %v", err)
	}
}

// TestKeyFiles checks that a file is created once, readable by its owner only, and that a file with other content is refused
// without showing it.
func TestKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.key")
	must.Do(t, CreateKeys(path))
	content := must.Get(os.ReadFile(path))(t)
	must.Do(t, CreateKeys(path))
	again, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the file was written again: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	signer := must.Get(LoadSigner(path, issuer, audience))(t)
	var private struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(signer.KeySet(), &private); err != nil || len(private.Keys) != 1 || private.Keys[0]["d"] != nil {
		t.Errorf("published %s, %v", signer.KeySet(), err)
	}
	sealing := filepath.Join(t.TempDir(), "sealing.key")
	must.Do(t, keyfile.Create(sealing, aead.AES256GCMKeyTemplate()))
	broken := filepath.Join(t.TempDir(), "broken.key")
	must.Do(t, os.WriteFile(broken, content[:len(content)-20], 0o600))
	for reason, path := range map[string]string{"a sealing key": sealing, "a broken file": broken, "no file": filepath.Join(t.TempDir(), "none")} {
		if _, err := LoadSigner(path, issuer, audience); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "keyData") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestPublishedKeysAreChecked(t *testing.T) {
	signer := newTestSigner(t)
	var set map[string][]map[string]any
	must.Do(t, json.Unmarshal(signer.KeySet(), &set))
	with := func(change func(key map[string]any)) []byte {
		key := map[string]any{}
		for name, value := range set["keys"][0] {
			key[name] = value
		}
		change(key)
		content, _ := json.Marshal(map[string]any{"keys": []any{key}})
		return content
	}
	for reason, content := range map[string][]byte{
		"not JSON": []byte("x"), "no keys": []byte(`{"keys":[]}`), "no ID": with(func(key map[string]any) { delete(key, "kid") }),
		"another algorithm": with(func(key map[string]any) { key["alg"] = "RS256" }), "not on the curve": with(func(key map[string]any) { key["x"] = key["y"] }),
		"too many": []byte(`{"keys":[` + strings.Repeat(`{},`, maxKeys) + `{}]}`),
	} {
		for _, parse := range []func([]byte) (*keys, error){parseKeys, usableKeys} {
			if _, err := parse(content); err == nil {
				t.Errorf("%s is accepted", reason)
			}
		}
	}
}

// TestUnusableKeyHidesNoOther publishes unusable keys before and after the key of admin.
func TestUnusableKeyHidesNoOther(t *testing.T) {
	signer := newTestSigner(t)
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	must.Do(t, json.Unmarshal(signer.KeySet(), &set))
	for reason, key := range map[string]string{"no key": `7`, "no ID": `{"kty":"EC","alg":"ES256"}`, "another algorithm": `{"kty":"RSA","alg":"RS256","kid":"a"}`,
		"a type of another kind": `{"kty":7}`, "not on the curve": `{"kty":"EC","crv":"P-256","alg":"ES256","kid":"a","x":"AA","y":"AA"}`} {
		content := must.Get(json.Marshal(map[string]any{"keys": []json.RawMessage{json.RawMessage(key), set.Keys[0], json.RawMessage(key)}}))(t)
		known, err := usableKeys(content)
		if err != nil || len(known.ids) != 1 {
			t.Errorf("%s: %v, %v", reason, known, err)
			continue
		}
		fixed := &Verifier{issuer: issuer, audience: audience, now: time.Now, find: func(_ context.Context, id string) (*keys, bool, error) { return known, known.ids[id], nil }}
		if _, err := fixed.Verify(t.Context(), sign(t, signer, asked(t))); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		if _, err := usableKeys([]byte(`{"keys":[` + key + `]}`)); err == nil || !strings.Contains(err.Error(), "keys[0]") {
			t.Errorf("%s alone: %v", reason, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	for reason, tc := range map[string]struct {
		values []string
		signed string
		ok     bool
	}{"none": {nil, "", true}, "one": {[]string{"a.b.c"}, "a.b.c", true}, "several": {[]string{"a.b.c", "d.e.f"}, "", false}} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{metadataKey: tc.values})
		if signed, ok := OfIncomingContext(ctx); signed != tc.signed || ok != tc.ok {
			t.Errorf("%s: got %q and %v", reason, signed, ok)
		}
	}
}

// FuzzVerify checks that no other text than a signed intent is accepted.
func FuzzVerify(f *testing.F) {
	signer := newTestSigner(f)
	var ahead atomic.Int64
	verifier := publish(f, signer).verifier(&ahead)
	good := sign(f, signer, asked(f))
	payload := func(signed string) string { return strings.Join(strings.Split(signed, ".")[:2], ".") }
	f.Add(good)
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.e30.")
	f.Add(sign(f, newTestSigner(f), asked(f)))
	f.Fuzz(func(t *testing.T, signed string) {
		i, err := verifier.Verify(context.Background(), signed)
		if err == nil && (strings.Count(signed, ".") != 2 || payload(signed) != payload(good)) {
			t.Fatalf("accepted %q as %v", signed, i)
		}
		if err != nil && apierror.KindOf(err) == apierror.Internal {
			t.Fatal(err)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	signer, i := newTestSigner(b), asked(b)
	for b.Loop() {
		sign(b, signer, i)
	}
}

// BenchmarkVerify includes the digest of the request.
func BenchmarkVerify(b *testing.B) {
	signer := newTestSigner(b)
	var ahead atomic.Int64
	verifier, signed, r := publish(b, signer).verifier(&ahead), sign(b, signer, asked(b)), request()
	for b.Loop() {
		i, err := verifier.Verify(b.Context(), signed)
		if err != nil || !i.AllowsCall(method, r) {
			b.Fatal(err)
		}
	}
}

// BenchmarkES256 verifies a bare signature, to compare with.
func BenchmarkES256(b *testing.B) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(b)
	sum := sha256.Sum256([]byte("content"))
	signature := must.Get(ecdsa.SignASN1(rand.Reader, key, sum[:]))(b)
	for b.Loop() {
		if !ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
			b.Fatal("the signature is invalid")
		}
	}
}
