package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/documentfields"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// scene is a registry with the links 7 of cluster a and 8 of cluster b, as their engineer requested them.
type scene struct {
	*Registry
	log *logtest.Log
	// earlier is the assignment of link 7 that original replaced, and other is link 8.
	earlier, original, other database.EgressLinkDocument
}

func newScene(t testing.TB) *scene {
	t.Helper()
	admin, log, now := intenttest.New(t), &logtest.Log{}, time.Now().UTC()
	p := must.Get(NewPolicy([]string{"quay.io"}, []uint16{443}))(t)
	s := &scene{log: log,
		earlier:  admin.EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "z", ResourceID: "/z", Hosts: []string{"z.example"}, RequestTime: now.Add(-48 * time.Hour)}),
		original: admin.EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 2, ClusterUID: "a", ResourceID: "/a", Hosts: []string{"a.example"}, RequestTime: now.Add(-24 * time.Hour)}),
		other:    admin.EgressLink(t, database.EgressLinkDocument{LinkID: "8", Generation: 1, ClusterUID: "b", ResourceID: "/b", Hosts: []string{"b.example"}}),
	}
	s.Registry = NewRegistry(RegistryOptions{Policy: p, Intents: admin.Verifier, Keys: admin.Signer.Ring, ConnectionsPerLink: 100, NewPerSecond: 1000, Log: slog.New(slog.NewJSONHandler(log, nil)), Metrics: prometheus.NewRegistry()})
	s.noteRead()
	t.Cleanup(func() { s.stale.Stop() })
	s.set(t.Context(), &s.other)
	return s
}

// counted returns the number of refused documents in the metric.
func (s *scene) counted(reason string) float64 {
	return testutil.ToFloat64(s.gauge.WithLabelValues(reason))
}

// permits returns the cluster of a link with the hosts that it may connect to, and an open connection; an empty text if the link is refused.
func (s *scene) permits(t testing.TB, id uint32) (permitted string, c *Connection) {
	t.Helper()
	c, err := s.Open(t.Context(), id)
	if err != nil {
		return "", nil
	}
	permitted = c.Cluster.UID + c.Cluster.ResourceID
	for _, host := range []string{"a.example", "b.example", "rewritten", "z.example"} {
		if _, reason := s.options.Policy.Decide(&c.entry.document, Request{Host: host, Port: 443}); reason == Permitted {
			permitted += " " + host
		}
	}
	return permitted, c
}

// TestRewrittenFieldsAuthorizeNothing rewrites each field of the document of a link, in each order of the versions. Nothing but what the engineer requested is permitted
// at any time, and never the assignment that was replaced. A rewritten version is counted, and does not affect another link.
func TestRewrittenFieldsAuthorizeNothing(t *testing.T) {
	// describing are the fields that describe the link. They authorize nothing.
	describing := []string{"generation", "requestTime"}
	values := map[string]any{"linkId": "9", "hosts": []string{"a.example", "rewritten"}}
	documentfields.Each(t, values, func(name string, rewrite func(*database.EgressLinkDocument)) {
		for order, steps := range map[string]string{
			"only the rewritten version": "R",
			"rewritten, original":        "RO",
			"original, rewritten":        "OR",
			"changed and changed back":   "ORO",
			"rewritten twice":            "OROR",
			"earlier, rewritten":         "ER",
			"replaced, changed":          "EOR",
			"changed to the earlier one": "OE",
			"the earlier one, rewritten": "OERE",
		} {
			t.Run(fmt.Sprintf("%s/%s", name, order), func(t *testing.T) {
				s := newScene(t)
				rewritten := s.original
				rewrite(&rewritten)
				versions := map[rune]*database.EgressLinkDocument{'E': &s.earlier, 'O': &s.original, 'R': &rewritten}
				allowed := map[rune][]string{'E': {"z/z z.example"}, 'O': {"a/a a.example"}, 'R': {""}}
				if slices.Contains(describing, name) {
					allowed['R'] = allowed['O']
				}
				var open *Connection
				latest := 'E'
				for i, step := range steps {
					if step != 'E' && latest == 'E' && (step == 'O' || slices.Contains(describing, name)) {
						latest = 'O'
					}
					s.set(t.Context(), versions[step])
					want := allowed[step]
					if step == 'E' && latest == 'O' {
						want = []string{"a/a a.example", ""} // what the registry had remains, unless it was rewritten in between
					}
					if name == "linkId" && step == 'R' && i > 0 {
						want = slices.Concat(allowed[latest], []string{""}) // the document of another link
					}
					if name == "removedTime" && step == 'O' && strings.Contains(steps[:i], "O") {
						want = []string{""} // whoever can write to the database can remove a link, and cannot restore it
					}
					got, c := s.permits(t, 7)
					if !slices.Contains(want, got) {
						t.Errorf("after %s, the link permits %q, want %q", steps[:i+1], got, want)
					}
					if open != nil && got == "" && context.Cause(open.Context()) == nil {
						t.Errorf("after %s, a connection is open", steps[:i+1])
					}
					open = c
					if got, _ := s.permits(t, 9); got != "" {
						t.Errorf("after %s, the link 9 permits %q", steps[:i+1], got)
					}
					if got, _ := s.permits(t, 8); got != "b/b b.example" {
						t.Errorf("after %s, the link 8 permits %q", steps[:i+1], got)
					}
				}
				refused := s.counted(unverified) + s.counted(replayed)
				if last := steps[len(steps)-1]; last == 'R' && name != "removedTime" && (refused > 0) == slices.Contains(describing, name) {
					t.Errorf("%v documents are refused", refused)
				}
				if refused > 0 && !strings.Contains(s.log.String(), `"an egress link is not accepted; assign it again"`) {
					t.Errorf("the log is %s", s.log)
				}
			})
		}
	})
}

// TestRemovedLinkIsNotRestored writes the document of a removed link as it was before. A new assignment to the same cluster is accepted.
func TestRemovedLinkIsNotRestored(t *testing.T) {
	s := newScene(t)
	removed := s.original
	now := time.Now()
	removed.RemovedTime, removed.Hosts, removed.Intent = &now, nil, ""
	for i, version := range []*database.EgressLinkDocument{&s.original, &removed, &s.original} {
		s.set(t.Context(), version)
		if got, _ := s.permits(t, 7); (got != "") != (i == 0) {
			t.Errorf("after version %d, the link permits %q", i, got)
		}
	}
	if _, err := s.Open(t.Context(), 7); !errors.Is(err, ErrUnknown) || s.counted(replayed) != 1 {
		t.Errorf("%v, and %v documents are refused", err, s.counted(replayed))
	}
}

// TestDocumentsAreVerifiedAgainWithNewKeys assigns a link with a key that the gateway does not have yet. It is served when the key arrives. The link of a key that is
// withdrawn is refused, and served again with the signature of another key.
func TestDocumentsAreVerifiedAgainWithNewKeys(t *testing.T) {
	dir := t.TempDir()
	private, public := filepath.Join(dir, "private.json"), filepath.Join(dir, "public.json")
	issuer, audience := intent.RegionIssuer(intenttest.TrustDomain)
	must.Do(t, errors.Join(intent.CreateKeys(private), keyfile.WritePublic(private, public)))
	signer := must.Get(intent.LoadSigner(private, issuer, audience))(t)
	admin := &intenttest.Admin{Signer: signer, Verifier: signer.Verifier()}
	s := newScene(t)
	var err error
	s.options.Intents, s.options.Keys, err = intent.LoadVerifier(public, intenttest.TrustDomain)
	must.Do(t, err)
	former := signer.Ring().Primary
	document := admin.EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "a", ResourceID: "/a"})
	expect := func(when, want string) {
		t.Helper()
		s.followKeys(t.Context())
		if got, _ := s.permits(t, 7); got != want {
			t.Errorf("%s, the link permits %q, want %q", when, got, want)
		}
	}
	s.set(t.Context(), &document)
	expect("with its key", "a/a")
	must.Do(t, keyfile.Promote(private, must.Get(keyfile.Add(private))(t)))
	asked := must.Get(admin.Verifier.Verify(t.Context(), document.Intent))(t)
	again := document
	if again.Intent, err = signer.Sign(asked); err != nil || signer.Primary(document.Intent) || !signer.Primary(again.Intent) {
		t.Fatal("the intent is not signed with the new key", err)
	}
	s.set(t.Context(), &again)
	expect("before the new key has arrived", "")
	must.Do(t, keyfile.WritePublic(private, public))
	expect("with the new key", "a/a")
	s.set(t.Context(), &document)
	must.Do(t, errors.Join(keyfile.Remove(private, former), keyfile.WritePublic(private, public)))
	expect("after its key was withdrawn", "")
	s.set(t.Context(), &again)
	expect("with the signature of the new key", "a/a")
}

// BenchmarkSet reads a version of a document: one with another signature, and one that the registry has.
func BenchmarkSet(b *testing.B) {
	for name, versions := range map[string]int{"new version": 2, "same version": 1} {
		b.Run(name, func(b *testing.B) {
			s := newScene(b)
			documents := []database.EgressLinkDocument{s.original, s.original}
			documents[1].Generation++
			for i := 0; b.Loop(); i++ {
				s.set(b.Context(), &documents[i%versions])
			}
		})
	}
}

// BenchmarkOpen opens and closes a connection of a link.
func BenchmarkOpen(b *testing.B) {
	s := newScene(b)
	s.options.NewPerSecond = 1_000_000_000
	s.set(b.Context(), &s.original)
	for b.Loop() {
		c := must.Get(s.Open(b.Context(), 7))(b)
		c.Close()
	}
}
