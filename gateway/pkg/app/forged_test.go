package app

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// forgedOnce is the metric of forged sessions after the document of one was changed.
const forgedOnce = `# HELP gateway_access_sessions_forged_total Access sessions that ended because their document was forged, by reason: changed (a field that never changes) or unverified (the credential or the token is for another session).
# TYPE gateway_access_sessions_forged_total counter
gateway_access_sessions_forged_total{reason="changed"} 1
gateway_access_sessions_forged_total{reason="unverified"} 0
`

// TestRewrittenSessionIsRefused rewrites the document of alice's session with the right to write the container, and changes it back. Neither mallory nor alice can
// use the session before or after that: what they ask for is refused, and a watch that was open ends.
func TestRewrittenSessionIsRefused(t *testing.T) {
	t.Parallel()
	const (
		bobSession = "b0000000-0000-4000-8000-00000000000b"
		pods       = alicePath + "/api/v1/pods"
	)
	steal := func(v *database.AccessSessionDocument) { v.Owner.ObjectID = "mallory" }
	for name, tc := range map[string]struct {
		rewrite func(*database.AccessSessionDocument)
		// rewrittenFirst makes the rewritten version the first one that the gateway reads. ready makes the session ready before it is rewritten.
		rewrittenFirst, ready bool
		want                  string
	}{
		"another owner at first":              {steal, true, false, "its document was changed: owner"},
		"another owner before its credential": {steal, false, false, "its document was changed: owner"},
		"another owner when it is ready":      {steal, false, true, "its document was changed: owner"},
		"another mode when it is ready":       {func(v *database.AccessSessionDocument) { v.Mode = "admin" }, false, true, "its document was changed: mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.handle(endless)
			r.cluster(nil)
			request := r.request(aliceSession, "alice", nil)
			original := must.Get(r.document(aliceSession))(t)
			write := func(change func(*database.AccessSessionDocument)) {
				t.Helper()
				must.Get(r.db.ChangeAccessSession(t.Context(), database.AccessSessionKey(clusterUID, aliceSession), func(v *database.AccessSessionDocument) (bool, error) {
					*v = *original
					if change != nil {
						change(v)
					}
					return true, nil
				}))(t)
			}
			claimant := "alice"
			if tc.rewrittenFirst {
				write(tc.rewrite)
				claimant = "mallory"
			}
			if tc.ready {
				r.issue(aliceSession, request, 15*time.Minute)
			}
			g := r.start()
			var watch io.Reader
			if tc.ready {
				g.await(aliceSession, database.AccessSessionReady)
				events, body := g.watch(pods + "?watch=true")
				defer func() { _ = body.Close() }()
				watch = events
			} else {
				eventually.Soon(t, "the gateway knows the session", func() error {
					if response, body := g.send(http.MethodGet, claimant, pods, ""); !strings.Contains(body, "not issued yet") {
						return fmt.Errorf("%s: %s", response.Status, body)
					}
					return nil
				})
			}
			if tc.rewrittenFirst {
				write(nil)
			} else {
				write(tc.rewrite)
			}
			if ended := g.await(aliceSession, database.AccessSessionEnded); ended.EndReason != tc.want || len(ended.SealedKeys) > 0 {
				t.Errorf("the session is %+v", ended)
			}
			if watch != nil {
				if _, err := io.ReadAll(watch); err == nil {
					t.Error("the watch was completed")
				}
			}
			// The session of bob is ready when the gateway has read what was written and issued before.
			write(nil)
			if !tc.ready {
				r.issue(aliceSession, request, 15*time.Minute)
			}
			r.issue(bobSession, r.request(bobSession, "bob", nil), 15*time.Minute)
			g.await(bobSession, database.AccessSessionReady)
			arrived := len(r.arrived())
			for _, token := range []string{"mallory", "alice"} {
				for _, path := range []string{pods, alicePath + "/api/v1/namespaces/kube-system/secrets"} {
					if response, body := g.send(http.MethodGet, token, path, ""); response.StatusCode != http.StatusForbidden || !strings.Contains(message(t, body), tc.want) {
						t.Errorf("%s of %s: %s: %s", path, token, response.Status, body)
					}
				}
			}
			if after := len(r.arrived()); after != arrived {
				t.Errorf("%d requests reached the API server", after-arrived)
			}
			if err := testutil.GatherAndCompare(g.metrics, strings.NewReader(forgedOnce), "gateway_access_sessions_forged_total"); err != nil {
				t.Error(err)
			}
			if records := strings.Count(r.log.String(), `"an access session is forged"`); records != 1 {
				t.Errorf("the log has %d records", records)
			}
		})
	}
}
