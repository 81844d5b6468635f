package app

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// managementServer is the API server of a management cluster, with the part of its agent that issues tokens.
type managementServer struct {
	*httptest.Server
	mu sync.Mutex
	// failures are the errors of the next requests for tokens. asked are all requests.
	failures []error
	asked    []grant.Request
	// authorization are the headers of the requests that arrived.
	authorization []string
	lifetime      time.Duration
}

func newManagementServer(t *testing.T) *managementServer {
	t.Helper()
	m := &managementServer{lifetime: 10 * time.Minute}
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
	return &grant.Grant{Token: "token-of-" + request.Intent, Server: m.URL, Authorities: string(authorities), ExpirationTime: time.Now().Add(m.lifetime),
		SessionID: aliceSession, ObjectID: "alice", TenantID: "tenant", ElevationID: "elevation", Mode: "read"}, &intent.Intent{}, nil
}

// Address implements grant.Granter.
func (m *managementServer) Address() string { return m.Listener.Addr().String() }

// resolver returns an agent.Resolver that knows no cluster.
func (*managementServer) resolver() agent.Resolver { return oneServer{} }

// shardSession stores a session for the management cluster, as admin does, and its intent unless that is empty, as the backend does.
func (r *region) shardSession(id, intent string, change func(*database.AccessSessionDocument)) database.Key {
	r.t.Helper()
	now := time.Now().UTC()
	document := database.AccessSessionDocument{SessionID: id, Shard: managementCluster, Mode: "read", State: database.AccessSessionRequested, RequestTime: now, Intent: intent,
		Parameters: []byte(`{"mode":"read"}`), RequestExpirationTime: now.Add(2 * time.Minute), ElevationExpirationTime: now.Add(time.Hour),
		Owner: database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "operator", ElevationID: "elevation", Reason: "it is slow", Ticket: "INC-1"}}
	if change != nil {
		change(&document)
	}
	at := document.Key()
	batch := r.db.NewBatch(at.SubscriptionID)
	database.Create(batch, r.db.AccessSessions(), at, document)
	if err := batch.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
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
	toServiceCluster := func(v *database.AccessSessionDocument) { v.Shard = adminv1.ServiceCluster }
	t.Run("issued", func(t *testing.T) {
		r, m := newRegion(t), newManagementServer(t)
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
		recorded := false
		for _, record := range r.trail.Records(t) {
			if record.Action == "kubernetes.list" && record.Outcome == audit.Succeeded {
				recorded = record.Object.Shard == adminv1.ServiceCluster && record.Person.ObjectID == "alice"
			}
		}
		if !recorded {
			t.Errorf("the audit has no record of the request: %+v", r.trail.Records(t))
		}
	})
	t.Run("refused", func(t *testing.T) {
		r, m := newRegion(t), newManagementServer(t)
		m.failures = []error{apierror.New(apierror.Unavailable, "The keys cannot be fetched."), intent.Mismatch("action")}
		r.change = func(p *Parts) { p.ServiceCluster = serviceGrants{m} }
		g := r.start()
		at := r.shardSession(aliceSession, "intent", toServiceCluster)
		if ended := g.awaitAt(at, database.AccessSessionEnded); !strings.HasPrefix(ended.EndReason, "the service cluster has refused a token: ") {
			t.Errorf("the session is %+v", ended)
		}
	})
	t.Run("without the program", func(t *testing.T) {
		r := newRegion(t)
		g := r.start()
		at := r.shardSession(aliceSession, "intent", toServiceCluster)
		if ended := g.awaitAt(at, database.AccessSessionEnded); ended.EndReason != "the session gateway has no sessions for the service cluster" {
			t.Errorf("the session is %+v", ended)
		}
	})
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
	r, m := newRegion(t), newManagementServer(t)
	r.withTunnels()
	m.failures = []error{apierror.New(apierror.Unavailable, "The keys cannot be fetched."), apierror.New(apierror.Unavailable, "The keys cannot be fetched.")}
	g := r.start()
	g.connectAgent(t, m.resolver(), m)
	at := r.shardSession(aliceSession, "", nil)
	if response, body := g.sendUntilKnown(t, alicePath+"/api/v1/pods"); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "not issued yet") {
		t.Errorf("before the intent: %s: %s", response.Status, body)
	}
	if _, err := r.db.ChangeAccessSession(t.Context(), at, func(v *database.AccessSessionDocument) (bool, error) {
		v.Intent = "intent"
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	ready := g.awaitAt(at, database.AccessSessionReady)
	if until := time.Until(*ready.ExpirationTime); until < 9*time.Minute || until > 10*time.Minute {
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
	recorded := false
	for _, record := range r.trail.Records(t) {
		if record.Action == "kubernetes.list" && record.Object.Kind == "hostedclusters.hypershift.openshift.io" && record.Outcome == audit.Succeeded {
			recorded = record.Object.Shard == managementCluster && record.Object.Cluster == "" && record.Person.ObjectID == "alice" && record.Ticket == "INC-1"
		}
	}
	if !recorded {
		t.Errorf("the audit has no record of the request: %+v", r.trail.Records(t))
	}
	if strings.Contains(r.log.String(), "token-of-intent") {
		t.Error("the log has the token")
	}
	if _, err := r.db.ChangeAccessSession(t.Context(), at, func(v *database.AccessSessionDocument) (bool, error) {
		return v.End("alice", "ended by alice", time.Now()), nil
	}); err != nil {
		t.Fatal(err)
	}
	g.awaitRefusal(t, hosted, "ended by alice")
}

// TestSessionForManagementClusterEnds ends sessions that get no token: the agent refuses their intent, the gateway has no tunnels, or nobody completed the
// request in time. A session ends when its token or its elevation expires.
func TestSessionForManagementClusterEnds(t *testing.T) {
	soon := func(v *database.AccessSessionDocument) {
		v.ElevationExpirationTime = time.Now().Add(2 * time.Second)
	}
	for name, test := range map[string]struct {
		tunnels  bool
		intent   string
		failures []error
		lifetime time.Duration
		change   func(*database.AccessSessionDocument)
		reason   string
	}{
		"refused":          {true, "intent", []error{intent.Mismatch("action")}, time.Hour, nil, "the management cluster has refused a token: The engineer's signed intent is not accepted: it is for another action."},
		"no tunnels":       {false, "intent", nil, time.Hour, nil, "the session gateway has no tunnels to management clusters"},
		"not requested":    {true, "", nil, time.Hour, func(v *database.AccessSessionDocument) { v.RequestExpirationTime = time.Now().Add(time.Second) }, "its token was not issued in time"},
		"expired token":    {true, "intent", nil, 2 * time.Second, nil, "its token or its elevation has expired"},
		"ended elevation":  {true, "intent", nil, time.Hour, soon, "its token or its elevation has expired"},
		"expired earlier":  {true, "intent", nil, -time.Second, nil, "its token or its elevation has expired"},
		"another engineer": {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Owner.ObjectID = "bob" }, "its token was issued for another session, engineer, elevation or mode"},
		"another mode":     {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Mode = "admin" }, "its token was issued for another session, engineer, elevation or mode"},
		"unsupported mode": {true, "intent", nil, time.Hour, func(v *database.AccessSessionDocument) { v.Mode = "write" }, `the gateway does not support the mode "write"`},
	} {
		t.Run(name, func(t *testing.T) {
			r, m := newRegion(t), newManagementServer(t)
			m.failures, m.lifetime = test.failures, test.lifetime
			if test.tunnels {
				r.withTunnels()
			}
			g := r.start()
			if test.tunnels {
				g.connectAgent(t, m.resolver(), m)
			}
			at := r.shardSession(aliceSession, test.intent, test.change)
			if ended := g.awaitAt(at, database.AccessSessionEnded); ended.EndReason != test.reason || ended.EndedBy != "gateway-access" || ended.Intent != "" {
				t.Errorf("the session is %+v", ended)
			}
		})
	}
}

// sendUntilKnown sends a request of alice until the gateway knows her session, and returns the response.
func (g *gateway) sendUntilKnown(t *testing.T, path string) (response *http.Response, body string) {
	t.Helper()
	eventually.Soon(t, "the gateway knows the session", func() error {
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
