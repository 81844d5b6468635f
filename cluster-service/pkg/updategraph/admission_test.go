package updategraph

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// digests are the digests that parse gives to the releases of the tests, which list them in this order.
var digests = map[string]string{
	"4.20.1": "sha256:" + strings.Repeat("a", 64),
	"4.21.1": "sha256:" + strings.Repeat("b", 64),
	"4.22.0": "sha256:" + strings.Repeat("c", 64),
}

// publisher signs releases into a folder.
type publisher struct {
	key *signature.Key
	dir string
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	key, err := signature.NewKey(signature.KeyOptions{Name: "publisher"})
	if err != nil {
		t.Fatal(err)
	}
	return &publisher{key: key, dir: t.TempDir()}
}

func (p *publisher) sign(t *testing.T, versions ...string) {
	t.Helper()
	for _, version := range versions {
		if err := p.key.SignInto(p.dir, digests[version], signature.NewReference("quay.io/releases", version)); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *publisher) verifier(t *testing.T) *signature.Verifier {
	t.Helper()
	public, err := p.key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	root, err := signature.ParseTrustRoot(public)
	if err != nil {
		t.Fatal(err)
	}
	store, err := signature.OpenStore("file://"+p.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return signature.NewVerifier(root, store, nil)
}

func (p *publisher) source(t *testing.T, url string, store Store, catalog *release.Catalog) *Source {
	t.Helper()
	return New(Options{URL: url, Client: http.DefaultClient, Store: store, Catalog: catalog, Signatures: p.verifier(t), Refresh: time.Millisecond, Metrics: prometheus.NewRegistry()})
}

func awaitRefusal(t *testing.T, s *Source, version string, unavailable bool) {
	t.Helper()
	eventually.Soon(t, version+" is refused", func() error {
		refusal, known := s.Catalog().RefusalOf(version)
		switch {
		case !known:
			return errors.New("it is not refused")
		case errors.Is(refusal.Reason, errUnverified):
			return errors.New("it is not verified")
		case isUnavailable(refusal.Reason) != unavailable:
			return refusal.Reason
		}
		return nil
	})

}

func catalogOfTests(t *testing.T) *release.Catalog {
	t.Helper()
	return parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21, stable-4.22", "4.22.0 stable-4.22")
}

// TestUnsignedReleaseIsRefused: before the first verification and without a signature, nobody can choose a release.
func TestUnsignedReleaseIsRefused(t *testing.T) {
	p, other := newPublisher(t), newPublisher(t)
	p.sign(t, "4.20.1")
	other.dir = p.dir
	other.sign(t, "4.21.1")
	s := p.source(t, "", &memory{}, catalogOfTests(t))
	if refusal, known := s.Catalog().RefusalOf("4.20.1"); !known || !isUnavailable(refusal.Reason) || len(s.Catalog().Releases()) != 0 {
		t.Errorf("before the verification: %v, %v", refusal, s.Catalog().Releases())
	}
	defer run(t, s)()
	await(t, s, "4.20.1")
	awaitRefusal(t, s, "4.21.1", false)
	awaitRefusal(t, s, "4.22.0", false)
	refusal, _ := s.Catalog().RefusalOf("4.22.0")
	if text := refusal.Reason.Error(); !strings.Contains(text, digests["4.22.0"]) || !strings.Contains(text, p.verifier(t).TrustRoot()) {
		t.Errorf("%q does not name the digest and the trust root", text)
	}
	if s.invalid.Load() != 2 || s.undecided.Load() != 0 {
		t.Errorf("%d invalid and %d undecided releases", s.invalid.Load(), s.undecided.Load())
	}
}

// TestSignedImageOfAnotherVersionIsRefused: the update graph gives a version the digest that the publisher has signed as another version.
func TestSignedImageOfAnotherVersionIsRefused(t *testing.T) {
	p := newPublisher(t)
	p.sign(t, "4.20.1")
	if err := p.key.SignInto(p.dir, digests["4.21.1"], signature.NewReference("quay.io/releases", "4.20.0")); err != nil {
		t.Fatal(err)
	}
	s := p.source(t, "", &memory{}, catalogOfTests(t))
	defer run(t, s)()
	await(t, s, "4.20.1")
	awaitRefusal(t, s, "4.21.1", false)
	refusal, _ := s.Catalog().RefusalOf("4.21.1")
	if text := refusal.Reason.Error(); !strings.Contains(text, "quay.io/releases:4.20.0-multi") {
		t.Errorf("%q does not name the signed reference", text)
	}
}

// TestSignatureStoreIsAway: verified releases stay available, also after a restart. Others are refused until the store is back.
func TestSignatureStoreIsAway(t *testing.T) {
	p, stored := newPublisher(t), &memory{}
	p.sign(t, "4.20.1")
	first := p.source(t, "", stored, parse(t, "4.20.1 stable-4.20"))
	stop := run(t, first)
	await(t, first, "4.20.1")
	stop()

	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(p.dir, away); err != nil {
		t.Fatal(err)
	}
	second := p.source(t, "", stored, catalogOfTests(t))
	defer run(t, second)()
	await(t, second, "4.20.1")
	awaitRefusal(t, second, "4.21.1", true)
	signed := publisher{key: p.key, dir: away}
	signed.sign(t, "4.21.1", "4.22.0")
	if err := os.Rename(away, p.dir); err != nil {
		t.Fatal(err)
	}
	await(t, second, "4.21.1")
	await(t, second, "4.22.0")
}

// TestStoredSignatureIsVerified: whoever can write the database cannot add a release.
func TestStoredSignatureIsVerified(t *testing.T) {
	p, attacker := newPublisher(t), newPublisher(t)
	p.sign(t, "4.20.1")
	forged, err := attacker.key.Sign(digests["4.21.1"], signature.NewReference("quay.io/releases", "4.21.1"))
	if err != nil {
		t.Fatal(err)
	}
	stored := &memory{signatures: map[string][]byte{digests["4.21.1"]: forged}}
	s := p.source(t, "", stored, catalogOfTests(t))
	defer run(t, s)()
	await(t, s, "4.20.1")
	awaitRefusal(t, s, "4.21.1", false)
	if saved, _ := stored.ReleaseSignatures(t.Context()); len(saved) != 1 || saved[digests["4.20.1"]] == nil {
		t.Errorf("%d signatures are stored", len(saved))
	}
}
