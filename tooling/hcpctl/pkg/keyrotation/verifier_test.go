package keyrotation

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// signing is a keyset of intents with a replica that signs, and one that verifies with a copy of the public keyset.
type signing struct {
	keyset, public, copied string
	signer                 *intent.Signer
	verifier               *intent.Verifier
	urls                   map[string][]string
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	dir := t.TempDir()
	s := &signing{keyset: filepath.Join(dir, "intent.key"), public: filepath.Join(dir, "intent.json"), copied: filepath.Join(dir, "copied.json"), urls: map[string][]string{}}
	must.Do(t, errors.Join(intent.CreateKeys(s.keyset), keyfile.WritePublic(s.keyset, s.public)))
	copyFile(t, s.public, s.copied)
	issuer, audience := intent.RegionIssuer("region.example")
	var ring func() keyfile.Ring
	var err error
	s.signer = must.Get(intent.LoadSigner(s.keyset, issuer, audience))(t)
	if s.verifier, ring, err = intent.LoadVerifier(s.copied, "region.example"); err != nil {
		t.Fatal(err)
	}
	for service, collector := range map[string]prometheus.Collector{"admin": keyfile.Collector("intent-key-file", s.signer.Ring), "gateway-tunnel": keyfile.Collector("intent-keys-file", ring)} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector)
		server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(server.Close)
		s.urls[service] = []string{server.URL}
	}
	return s
}

// rotation returns a rotation. Unless reaches is true, its Publish does not replace the file of the replica that verifies.
func (s *signing) rotation(t *testing.T, reaches bool) *Rotation {
	t.Helper()
	kind := must.Get(KindOf("intents"))(t)
	kind.Needed = 0
	r := &Rotation{Kind: kind, Keyset: s.keyset, PublicKeyset: s.public, Replicas: s.urls, Options: Options{HTTP: http.DefaultClient, Now: time.Now, NoWait: true, Note: func(text string) { t.Log(text) }}}
	r.Publish = func(context.Context) error {
		if !reaches {
			return nil
		}
		return replaceFile(s.public, s.copied)
	}
	r.reached = func() error { s.check(t); return nil }
	return r
}

// check checks that the replica that verifies accepts what the other one signs now.
func (s *signing) check(t *testing.T) {
	t.Helper()
	now := time.Now()
	signed := must.Get(s.signer.Sign(&intent.Intent{OperationID: "operation", ObjectID: "engineer", Action: "action", Parameters: "digest",
		Elevation: intent.Elevation{ID: "elevation", ExpiresAt: now.Add(time.Hour)}, IssuedAt: now, ExpiresAt: now.Add(time.Minute)}))(t)
	if _, err := s.verifier.Verify(t.Context(), signed); err != nil {
		t.Errorf("an intent is refused: %v", err)
	}
}

// TestKeyDoesNotSignBeforeVerifiersHaveIt rotates the key of intents while the public keyset does not reach an agent of tunnels, and continues when it does.
func TestKeyDoesNotSignBeforeVerifiersHaveIt(t *testing.T) {
	s := newSigning(t)
	former := s.signer.Ring().Primary
	for range 2 {
		if err := s.rotation(t, false).Run(t.Context()); !errors.Is(err, ErrNotYet) || !strings.Contains(err.Error(), s.urls["gateway-tunnel"][0]) {
			t.Fatalf("got the error %v, want one with the replica that verifies", err)
		}
		if ring := s.signer.Ring(); ring.Primary != former || len(ring.IDs) != 2 {
			t.Errorf("the keyset has %+v, and the former key %d should sign", ring, former)
		}
	}
	must.Do(t, s.rotation(t, true).Run(t.Context()))
	if ring := s.signer.Ring(); ring.Primary == former || len(ring.IDs) != 1 {
		t.Errorf("the keyset has %+v after the rotation", ring)
	}
	s.check(t)
}

// TestRotationWithUnknownVerifierIsRefused begins a rotation while an agent of tunnels verifies with other keys.
func TestRotationWithUnknownVerifierIsRefused(t *testing.T) {
	s := newSigning(t)
	other := filepath.Join(t.TempDir(), "other.key")
	must.Do(t, errors.Join(intent.CreateKeys(other), keyfile.WritePublic(other, s.copied)))
	r := s.rotation(t, true)
	r.reached = nil
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "does not have the public key") {
		t.Errorf("got the error %v", err)
	}
	if ring := s.signer.Ring(); len(ring.IDs) != 1 {
		t.Errorf("the keyset was changed: %+v", ring)
	}
}
