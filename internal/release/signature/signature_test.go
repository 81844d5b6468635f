package signature

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const reference = "quay.io/openshift-release-dev/ocp-release:4.20.8-multi"

var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
	begin   = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func newKey(t *testing.T, o KeyOptions) *Key {
	t.Helper()
	if o.Now == nil {
		o.Now = at(begin)
	}
	k, err := NewKey(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rootOf(t *testing.T, keys ...*Key) *TrustRoot {
	t.Helper()
	var text []byte
	for _, k := range keys {
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, public...)
	}
	root, err := ParseTrustRoot(text)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func signed(t *testing.T, k *Key, digest string) []byte {
	t.Helper()
	message, err := k.Sign(digest, reference)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// signedText signs any content.
func signedText(t *testing.T, k *Key, text string) []byte {
	t.Helper()
	message, err := k.sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func TestVerify(t *testing.T) {
	publisher, other := newKey(t, KeyOptions{Name: "publisher"}), newKey(t, KeyOptions{Name: "other"})
	short := newKey(t, KeyOptions{Name: "short", Lifetime: time.Hour})
	revoked := newKey(t, KeyOptions{Name: "revoked"})
	beforeRevocation := signed(t, revoked, digestA)
	if err := revoked.entity.RevokeKey(packet.KeyCompromised, "stolen", revoked.config()); err != nil {
		t.Fatal(err)
	}
	root := rootOf(t, publisher, short, revoked)
	valid := signed(t, publisher, digestA)
	text, err := json.Marshal(map[string]any{"critical": map[string]any{"type": messageType, "image": map[string]string{"docker-manifest-digest": digestA},
		"identity": map[string]string{"docker-reference": reference}}, "optional": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(old, with string) []byte {
		return signedText(t, publisher, strings.Replace(string(text), old, with, 1))
	}
	tampered := bytes.Replace(valid, []byte(digestA), []byte(digestB), 1)
	if bytes.Equal(tampered, valid) {
		t.Fatal("the message does not contain the digest")
	}
	var encrypted bytes.Buffer
	in, err := openpgp.Encrypt(&encrypted, openpgp.EntityList{publisher.entity}, publisher.entity, nil, publisher.config())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write(text)
	in.Close()

	for reason, c := range map[string]struct {
		digest  string
		message []byte
		now     time.Time
		valid   bool
	}{
		"a valid message":                        {digestA, valid, begin, true},
		"the content of another signer":          {digestA, signedText(t, publisher, string(text)), begin, true},
		"a message of a key that has not ended":  {digestA, signed(t, short, digestA), begin.Add(30 * time.Minute), true},
		"another digest":                         {digestB, valid, begin, false},
		"a key outside of the trust root":        {digestA, signed(t, other, digestA), begin, false},
		"a changed content":                      {digestB, tampered, begin, false},
		"a key that has expired":                 {digestA, signed(t, short, digestA), begin.Add(2 * time.Hour), false},
		"a key that is revoked":                  {digestA, beforeRevocation, begin.Add(time.Hour), false},
		"a message from the future":              {digestA, valid, begin.Add(-time.Hour), false},
		"the first half of a message":            {digestA, valid[:len(valid)/2], begin, false},
		"a message without its signature":        {digestA, valid[:len(valid)-60], begin, false},
		"no message":                             {digestA, nil, begin, false},
		"text":                                   {digestA, text, begin, false},
		"an encrypted message":                   {digestA, encrypted.Bytes(), begin, false},
		"another type":                           {digestA, replaced(messageType, "cosign container image signature"), begin, false},
		"an unknown field":                       {digestA, replaced(`"optional":{}`, `"optional":{"more":1}`), begin, false},
		"a field twice":                          {digestA, replaced(`"optional":{}`, `"optional":{},"optional":{}`), begin, false},
		"no reference":                           {digestA, replaced(reference, ""), begin, false},
		"two JSON values":                        {digestA, replaced("}}", "}} {}"), begin, false},
		"content that is too large":              {digestA, signedText(t, publisher, string(text)+strings.Repeat(" ", MaxMessage)), begin, false},
		"a message that is not the trust root's": {digestA, signedText(t, other, string(text)), begin, false},
	} {
		t.Run(reason, func(t *testing.T) {
			if _, err := root.Verify(c.digest, c.message, c.now); (err == nil) != c.valid {
				t.Errorf("got %v, want valid: %v", err, c.valid)
			}
		})
	}
}

// TestEveryChangedBitIsRefused changes each bit of a message.
func TestEveryChangedBitIsRefused(t *testing.T) {
	publisher := newKey(t, KeyOptions{Name: "publisher"})
	root, valid := rootOf(t, publisher), signed(t, publisher, digestA)
	for i := range valid {
		for bit := range 8 {
			changed := bytes.Clone(valid)
			changed[i] ^= 1 << bit
			if _, err := root.Verify(digestA, changed, begin); err == nil && !unsigned(valid, changed, i) {
				t.Fatalf("bit %d of byte %d was changed and the message is accepted", bit, i)
			}
		}
	}
}

// unsigned reports whether a changed byte is in a part of the message that OpenPGP does not sign: the packets around the content
// and the unhashed subpackets. The signed content must then be unchanged.
func unsigned(valid, changed []byte, i int) bool {
	from := bytes.Index(valid, []byte(`{"critical"`))
	to := bytes.LastIndex(valid, []byte(`}}`)) + 2
	return (i < from || i >= to) && bytes.Equal(valid[from:to], changed[from:to])
}

func FuzzVerify(f *testing.F) {
	publisher, err := NewKey(KeyOptions{Name: "publisher", Now: at(begin)})
	if err != nil {
		f.Fatal(err)
	}
	root := &TrustRoot{keys: openpgp.EntityList{publisher.entity}}
	valid, err := publisher.Sign(digestA, reference)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, err := root.Verify(digestB, message, begin); err == nil {
			t.Error("a digest that was never signed is accepted")
		}
	})
}

func TestParseTrustRoot(t *testing.T) {
	a, b := newKey(t, KeyOptions{Name: "a"}), newKey(t, KeyOptions{Name: "b"})
	root := rootOf(t, a, b)
	for _, k := range []*Key{a, b} {
		if _, err := root.Verify(digestA, signed(t, k, digestA), begin); err != nil {
			t.Error(err)
		}
	}
	private := filepath.Join(t.TempDir(), "private.asc")
	if _, err := LoadOrCreateKey(private, "a"); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	public, err := a.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for reason, text := range map[string][]byte{"nothing": nil, "text": []byte("key"), "a private key": secret, "text after a key": append(public, "more"...), "half a key": public[:len(public)/2]} {
		if _, err := ParseTrustRoot(text); err == nil {
			t.Errorf("%s is accepted", reason)
		}
	}
}

// TestOpenShift: the built-in key is the published one, can sign today, and does not accept another key.
func TestOpenShift(t *testing.T) {
	root, err := OpenShift()
	if err != nil {
		t.Fatal(err)
	}
	if want := "567E347AD0044ADE55BA8A5F199E2F91FD431D51"; root.String() != want {
		t.Errorf("the trust root has the keys %s, want %s", root, want)
	}
	if _, ok := root.keys[0].SigningKey(begin); !ok {
		t.Error("the key cannot sign")
	}
	if _, err := root.Verify(digestA, signed(t, newKey(t, KeyOptions{Name: "other"}), digestA), begin); err == nil {
		t.Error("a message of another key is accepted")
	}
}

// TestKeyOfFile: a key that is read from its file signs for the same trust root.
func TestKeyOfFile(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "key.asc"), t.TempDir()
	first, err := LoadOrCreateKey(path, "region")
	if err != nil {
		t.Fatal(err)
	}
	root := rootOf(t, first)
	again, err := LoadOrCreateKey(path, "region")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.SignInto(dir, digestA, reference); err != nil {
		t.Fatal(err)
	}
	if err := verifierOf(t, root, "file://"+dir, nil, nil).Verify(t.Context(), digestA); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func verifierOf(t *testing.T, root *TrustRoot, location string, client *http.Client, now func() time.Time) *Verifier {
	t.Helper()
	store, err := OpenStore(location, client)
	if err != nil {
		t.Fatal(err)
	}
	return NewVerifier(root, store, now)
}

func TestOpenStore(t *testing.T) {
	for _, location := range []string{"", "/folder", "http://mirror.example/signatures", "file://host/folder", "file:folder", "https://", "https://user:pw@mirror.example/", "https://mirror.example/?a=b"} {
		if _, err := OpenStore(location, http.DefaultClient); err == nil {
			t.Errorf("%q is accepted", location)
		}
	}
}

// TestVerifier: a store over HTTPS that has no message, a wrong one before the valid one, or does not respond.
func TestVerifier(t *testing.T) {
	publisher, other := newKey(t, KeyOptions{Name: "publisher", Lifetime: 24 * time.Hour}), newKey(t, KeyOptions{Name: "other"})
	root, dir := rootOf(t, publisher), t.TempDir()
	write := func(digest string, number string, message []byte) {
		t.Helper()
		folder := filepath.Join(dir, strings.Replace(digest, ":", "=", 1))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "signature-"+number), message, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var away atomic.Bool
	var requests atomic.Int64
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	now := begin
	v := verifierOf(t, root, server.URL, server.Client(), func() time.Time { return now })
	refusal := func(digest string) *Error {
		t.Helper()
		var refused *Error
		if err := v.Verify(t.Context(), digest); !errors.As(err, &refused) {
			t.Fatalf("got %v, want a refusal", err)
		}
		if !strings.Contains(refused.Error(), digest) || !strings.Contains(refused.Error(), root.String()) {
			t.Errorf("%q does not name the digest and the trust root", refused)
		}
		return refused
	}

	if r := refusal(digestA); r.Unavailable || !errors.Is(r, errMissing) {
		t.Errorf("without a message: %v", r)
	}
	write(digestA, "1", signed(t, other, digestA))
	if r := refusal(digestA); r.Unavailable {
		t.Errorf("with a message of another key: %v", r)
	}
	write(digestA, "2", signed(t, publisher, digestA))
	if err := v.Verify(t.Context(), digestA); err != nil {
		t.Fatal(err)
	}

	// A verified digest does not need the store; another one is refused until the store is back.
	away.Store(true)
	before := requests.Load()
	if err := v.Verify(t.Context(), digestA); err != nil || requests.Load() != before {
		t.Errorf("%v after %d requests", err, requests.Load()-before)
	}
	if r := refusal(digestB); !r.Unavailable {
		t.Errorf("while the store is away: %v", r)
	}
	// After an hour the message is verified again, without the store.
	now = begin.Add(2 * cachedFor)
	if err := v.Verify(t.Context(), digestA); err != nil {
		t.Error(err)
	}
	// Another process starts with the stored messages.
	messages := v.Messages()
	second := verifierOf(t, root, server.URL, server.Client(), func() time.Time { return now })
	for digest, message := range messages {
		if err := second.Add(digest, message); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Verify(t.Context(), digestA); err != nil || len(messages) != 1 {
		t.Errorf("%v with %d stored messages", err, len(messages))
	}
	// The cached message does not outlive its key.
	now = begin.Add(25 * time.Hour)
	if r := refusal(digestA); !r.Unavailable {
		t.Errorf("after the end of the key, while the store is away: %v", r)
	}
	away.Store(false)
	if r := refusal(digestA); r.Unavailable {
		t.Errorf("after the end of the key: %v", r)
	}
	if len(v.Messages()) != 0 {
		t.Error("the message of an expired key is still cached")
	}
	if err := v.Verify(t.Context(), "sha256:../../"); err == nil {
		t.Error("a malformed digest is accepted")
	}
}

// TestMissingFolderIsUnavailable: a folder that is not mounted does not prove that there is no signature.
func TestMissingFolderIsUnavailable(t *testing.T) {
	publisher := newKey(t, KeyOptions{Name: "publisher"})
	var refused *Error
	err := verifierOf(t, rootOf(t, publisher), "file://"+filepath.Join(t.TempDir(), "missing"), nil, at(begin)).Verify(t.Context(), digestA)
	if !errors.As(err, &refused) || !refused.Unavailable {
		t.Errorf("got %v", err)
	}
}

// endless is a store with any number of invalid messages for each digest.
type endless struct{ read int }

func (e *endless) String() string { return "endless" }

func (e *endless) Message(context.Context, string, int) ([]byte, error) {
	e.read++
	return []byte("invalid"), nil
}

// TestBounds: a store with endless messages is not read to its end, and the cache has a bound.
func TestBounds(t *testing.T) {
	publisher := newKey(t, KeyOptions{Name: "publisher"})
	store := &endless{}
	v := NewVerifier(rootOf(t, publisher), store, at(begin))
	if err := v.Verify(t.Context(), digestA); err == nil || store.read != maxMessages {
		t.Errorf("%v after %d messages", err, store.read)
	}
	for i := range maxCached {
		v.cached[string(rune(i))] = verified{}
	}
	if err := v.Add(digestA, signed(t, publisher, digestA)); err != nil {
		t.Fatal(err)
	}
	if len(v.Messages()) > maxCached {
		t.Errorf("%d messages are cached", len(v.Messages()))
	}
}
