package app

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// managementServer is the API server of a management cluster, with the part of its agent that issues tokens.
type managementServer struct {
	*httptest.Server
	clock clocktest.Clock
	mu    sync.Mutex
	// failures are the errors of the next requests for tokens. asked are all requests.
	failures []error
	asked    []grant.Request
	// authorization are the headers of the requests that arrived.
	authorization []string
	lifetime      time.Duration
}

// newManagementServer starts the API server. The clock is that of the tokens.
func newManagementServer(t *testing.T, clock clocktest.Clock) *managementServer {
	t.Helper()
	m := &managementServer{clock: clock, lifetime: 10 * time.Minute}
	m.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.authorization = append(m.authorization, strings.Join(r.Header.Values("Authorization"), ","))
		m.mu.Unlock()
		_, _ = io.WriteString(w, `{"kind":"HostedClusterList"}`)
	}))
	t.Cleanup(m.Close)
	return m
}

// Grant implements grant.Granter. The token is the number of the request.
func (m *managementServer) Grant(_ context.Context, request grant.Request) (*grant.Grant, *intent.Intent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, request)
	if len(m.failures) > 0 {
		failure := m.failures[0]
		m.failures = m.failures[1:]
		return nil, nil, failure
	}
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	return &grant.Grant{Token: "token-of-" + request.Intent, Server: m.URL, Authorities: string(authorities), ExpirationTime: m.clock.Now().Add(m.lifetime),
		SessionID: aliceSession, ObjectID: "alice", TenantID: "tenant", ElevationID: "elevation", Mode: "read"}, &intent.Intent{}, nil
}

// Address implements grant.Granter.
func (m *managementServer) Address() string { return m.Listener.Addr().String() }

// resolver returns an agent.Resolver that knows no cluster.
func (*managementServer) resolver() agent.Resolver { return oneServer{} }

// shardSession stores a session for the management cluster, as admin does, and its intent unless that is empty, as the backend does.
func (r *region) shardSession(id, intent string, change func(*database.AccessSessionDocument)) database.Key {
	r.t.Helper()
	now := r.clock.Now().UTC()
	document := database.AccessSessionDocument{SessionID: id, Shard: managementCluster, Mode: "read", State: database.AccessSessionRequested, RequestTime: now, Intent: intent,
		Parameters: []byte(`{"mode":"read"}`), RequestExpirationTime: now.Add(2 * time.Minute), ElevationExpirationTime: now.Add(time.Hour),
		Owner: database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "operator", ElevationID: "elevation", Reason: "it is slow", Ticket: "INC-1"}}
	if change != nil {
		change(&document)
	}
	at := document.Key()
	batch := r.db.NewBatch(at.SubscriptionID)
	database.Create(batch, r.db.AccessSessions(), at, document)
	must.Do(r.t, batch.Commit(r.t.Context()))
	return at
}

// serviceGrants issues tokens for the API server of the service cluster.
type serviceGrants struct{ *managementServer }

// Grant implements session.ServiceClusterGrants.
func (s serviceGrants) Grant(ctx context.Context, request grant.Request) (*grant.Grant, error) {
	issued, _, err := s.managementServer.Grant(ctx, request)
	return issued, err
}

// TestSessionForServiceCluster uses a session with a token for the service cluster, to which the gateway connects directly. A gateway without the program that
// issues tokens ends the session, and so does a refusal.
func TestSessionForServiceCluster(t *testing.T) {
	t.Parallel()
	toServiceCluster := func(v *database.AccessSessionDocument) { v.Shard = adminv1.ServiceCluster }
	t.Run("issued", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		m := newManagementServer(t, r.clock)
		r.change = func(p *Parts) { p.ServiceCluster = serviceGrants{m} }
		g := r.start()
		at := r.shardSession(aliceSession, "intent", toServiceCluster)
		g.awaitAt(at, database.AccessSessionReady)
		const policies = alicePath + "/apis/security.istio.io/v1/authorizationpolicies"
		if response, body := g.send(http.MethodGet, "alice", policies, ""); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", response.Status, body)
		}
		for _, path := range []string{"/api/v1/secrets", "/apis/hypershift.openshift.io/v1beta1/hostedclusters"} {
			if response, body := g.send(http.MethodGet, "alice", alicePath+path, ""); response.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: %s", path, response.Status, body)
			}
		}
		listed := r.awaitListed(t)
		if listed.Object.Shard != adminv1.ServiceCluster || listed.Person.ObjectID != "alice" {
			t.Errorf("the audit has the record %+v", listed)
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		m := newManagementServer(t, r.clock)
		m.failures = []error{apierror.New(apierror.Unavailable, "The keys cannot be fetched."), intent.Mismatch("action")}
		r.change = func(p *Parts) { p.ServiceCluster = serviceGrants{m} }
		g := r.start()
		at := r.shardSession(aliceSession, "intent", toServiceCluster)
		if ended := g.awaitAt(at, database.AccessSessionEnded); !strings.HasPrefix(ended.EndReason, "the service cluster has refused a token: ") {
			t.Errorf("the session is %+v", ended)
		}
	})
	t.Run("without the program", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		g := r.start()
		at := r.shardSession(aliceSession, "intent", toServiceCluster)
		if ended := g.awaitAt(at, database.AccessSessionEnded); ended.EndReason != "the session gateway has no sessions for the service cluster" {
			t.Errorf("the session is %+v", ended)
		}
	})
}

// awaitListed waits for the audit record of a list that has succeeded, and returns it. The client of a list does not wait for the record.
func (r *region) awaitListed(t *testing.T) (listed audit.Record) {
	t.Helper()
	eventually.Soon(t, "the audit has the list", func() error {
		records := r.trail.Records(t)
		i := slices.IndexFunc(records, func(record audit.Record) bool {
			return record.Action == "kubernetes.list" && record.Outcome == audit.Succeeded
		})
		if i < 0 {
			return fmt.Errorf("it has %+v", records)
		}
		listed = records[i]
		return nil
	})
	return listed
}

// withTunnels makes gateways accept the tunnels of the management cluster.
func (r *region) withTunnels() {
	r.change = func(p *Parts) {
		p.Tunnels = &tunnel.Options{Agents: map[string]string{managementCluster: managementCluster}, Authenticator: agents{}}
	}
}

// TestSessionForManagementCluster uses a session with the token that the agent issues for its intent, after the agent could not verify it at first. The API
// server gets this token and not that of the engineer. The mode read permits HostedClusters, and no Secrets. The end of the session ends it here.
func TestSessionForManagementCluster(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	m := newManagementServer(t, r.clock)
	r.withTunnels()
	m.failures = []error{apierror.New(apierror.Unavailable, "The keys cannot be fetched."), apierror.New(apierror.Unavailable, "The keys cannot be fetched.")}
	g := r.start()
	g.connectAgent(t, m.resolver(), m)
	at := r.shardSession(aliceSession, "", nil)
	if response, body := g.sendUntilKnown(alicePath + "/api/v1/pods"); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "not issued yet") {
		t.Errorf("before the intent: %s: %s", response.Status, body)
	}
	must.Get(r.db.ChangeAccessSession(t.Context(), at, func(v *database.AccessSessionDocument) (bool, error) {
		v.Intent = "intent"
		return true, nil
	}))(t)
	ready := g.awaitAt(at, database.AccessSessionReady)
	if until := ready.ExpirationTime.Sub(r.clock.Now()); until != m.lifetime {
		t.Errorf("the session ends in %s", until)
	}
	const hosted = alicePath + "/apis/hypershift.openshift.io/v1beta1/hostedclusters"
	if response, body := g.send(http.MethodGet, "alice", hosted, "", "X-Remote-User", "admin"); response.StatusCode != http.StatusOK || body != `{"kind":"HostedClusterList"}` {
		t.Errorf("%s: %s", response.Status, body)
	}
	for path, token := range map[string]string{hosted: "bob", alicePath + "/api/v1/secrets": "alice", alicePath + "/api/v1/namespaces/n/pods/p/exec?command=sh": "alice"} {
		if response, body := g.send(http.MethodGet, token, path, ""); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s as %s: %s: %s", path, token, response.Status, body)
		}
	}
	m.mu.Lock()
	if len(m.asked) != 3 || string(m.asked[2].Parameters) != `{"mode":"read"}` || len(m.authorization) != 1 || m.authorization[0] != "Bearer token-of-intent" {
		t.Errorf("the agent got %+v, the API server %q", m.asked, m.authorization)
	}
	m.mu.Unlock()
	listed := r.awaitListed(t)
	if listed.Object.Kind != "hostedclusters.hypershift.openshift.io" || listed.Object.Shard != managementCluster || listed.Object.Cluster != "" || listed.Person.ObjectID != "alice" || listed.Ticket != "INC-1" {
		t.Errorf("the audit has the record %+v", listed)
	}
	if strings.Contains(r.log.String(), "token-of-intent") {
		t.Error("the log has the token")
	}
	must.Get(r.db.ChangeAccessSession(t.Context(), at, func(v *database.AccessSessionDocument) (bool, error) {
		return v.End("alice", "ended by alice", r.clock.Now()), nil
	}))(t)
	g.awaitRefusal(t, hosted, "ended by alice")
}

// TestSessionForManagementClusterEnds ends sessions that get no token: the agent refuses their intent, the gateway has no tunnels, or nobody completed the
// request in time. A session ends when its token or its elevation expires.
func TestSessionForManagementClusterEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tunnels  bool
		intent   string
		failures []error
		lifetime time.Duration
		change   func(*database.AccessSessionDocument)
		// expires waits until the end of the session is due.
		expires func(r *region, g *gateway, at database.Key)
		reason  string
	}{
		"refused":          {true, "intent", []error{intent.Mismatch("action")}, time.Hour, nil, nil, "the management cluster has refused a token: The engineer's signed intent is not accepted: it is for another action."},
		"no tunnels":       {false, "intent", nil, time.Hour, nil, nil, "the session gateway has no tunnels to management clusters"},
		"not requested":    {true, "", nil, time.Hour, nil, requestExpires, "its token was not issued in time"},
		"expired token":    {true, "intent", nil, 10 * time.Minute, nil, readySessionExpires, "its token or its elevation has expired"},
		"ended elevation":  {true, "intent", nil, 2 * time.Hour, nil, readySessionExpires, "its token or its elevation has expired"},
		"expired earlier":  {true, "intent", nil, -time.Second, nil, nil, "its token or its elevation has expired"},
		"another engineer": {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Owner.ObjectID = "bob" }, nil, "its token was issued for another session, engineer, elevation or mode"},
		"another mode":     {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Mode = "admin" }, nil, "its token was issued for another session, engineer, elevation or mode"},
		"unsupported mode": {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Mode = "write" }, nil, `the gateway does not support the mode "write"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			m := newManagementServer(t, r.clock)
			m.failures, m.lifetime = test.failures, test.lifetime
			if test.tunnels {
				r.withTunnels()
			}
			g := r.start()
			if test.tunnels {
				g.connectAgent(t, m.resolver(), m)
			}
			at := r.shardSession(aliceSession, test.intent, test.change)
			if test.expires != nil {
				test.expires(r, g, at)
			}
			if ended := g.awaitAt(at, database.AccessSessionEnded); ended.EndReason != test.reason || ended.EndedBy != "gateway-access" || ended.Intent != "" {
				t.Errorf("the session is %+v", ended)
			}
		})
	}
}

// requestExpires waits until the gateway knows a session without a token, and advances the clock to the end of its request.
func requestExpires(r *region, g *gateway, _ database.Key) {
	g.sendUntilKnown(alicePath + "/api/v1/pods")
	r.clock.Step(2 * time.Minute)
}

// readySessionExpires waits until a session is ready, and advances the clock to its end.
func readySessionExpires(r *region, g *gateway, at database.Key) {
	r.clock.SetTime(*g.awaitAt(at, database.AccessSessionReady).ExpirationTime)
}

// sendUntilKnown sends a request of alice until the gateway knows her session, and returns the response.
func (g *gateway) sendUntilKnown(path string) (response *http.Response, body string) {
	g.r.t.Helper()
	eventually.Soon(g.r.t, "the gateway knows the session", func() error {
		if response, body = g.send(http.MethodGet, "alice", path, ""); strings.Contains(body, "does not exist") || strings.Contains(body, "cannot read") {
			return errors.New(body)
		}
		return nil
	})
	return response, body
}

// awaitRefusal waits until a request of alice is refused because her session has ended.
func (g *gateway) awaitRefusal(t *testing.T, path, reason string) {
	t.Helper()
	eventually.Soon(t, "the session has ended", func() error {
		if response, body := g.send(http.MethodGet, "alice", path, ""); response.StatusCode != http.StatusForbidden || !strings.Contains(body, reason) {
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		return nil
	})
}
