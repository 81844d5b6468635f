package mesh

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// renewed is a workload whose certificates last a day.
type renewed struct {
	t         *testing.T
	authority *Authority
	dir       string
	peer      Peer
}

func (r *renewed) issue() {
	r.t.Helper()
	must.Do(r.t, r.authority.IssueFor(24*time.Hour, r.dir, r.peer, "localhost"))
}

func newRenewed(t *testing.T, signer *Authority, peer Peer) (*renewed, *Identity) {
	t.Helper()
	r := &renewed{t, signer, t.TempDir(), peer}
	must.Do(t, authority.WriteFile(filepath.Join(r.dir, CAFile), signer.CertificatePEM(), 0o644))
	r.issue()
	identity := must.Get(LoadIdentity(r.dir))(t)
	return r, identity
}

// TestConnectionsDoNotOutliveCertificates makes calls, and keeps a stream open, for 3 days. While both sides renew their certificates, no
// call fails. When the client stops to renew, it cannot call after the end of its last certificate, nor receive on its stream.
func TestConnectionsDoNotOutliveCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := must.Get(OpenAuthority(t.TempDir(), "local"))(t)
		own, identity := newRenewed(t, signer, ClusterService)
		caller, callerIdentity := newRenewed(t, signer, Frontend)
		rules := []Rule{}
		for _, method := range []string{grpc_health_v1.Health_Check_FullMethodName, grpc_health_v1.Health_Watch_FullMethodName} {
			rules = append(rules, Rule{Server: ClusterService, Protocol: GRPC, Method: method, Clients: []Grant{{Client: Frontend}}})
		}
		server := grpc.NewServer(NewAuthorizer(ClusterService, rules, nil).ServerOptions(identity)...)
		state := health.NewServer()
		grpc_health_v1.RegisterHealthServer(server, state)
		listener := bufconn.Listen(64 << 10)
		var connects atomic.Int64
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		connection := must.Get(grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(credentials.NewTLS(callerIdentity.ClientTLS(ClusterService))),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				connects.Add(1)
				return listener.DialContext(ctx)
			})))(t)
		defer func() { _ = connection.Close() }()
		client := grpc_health_v1.NewHealthClient(connection)
		watching, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			for {
				stream, err := client.Watch(watching, &grpc_health_v1.HealthCheckRequest{})
				for err == nil {
					_, err = stream.Recv()
				}
				if status.Code(err) != codes.Unavailable || !time.Now().Before(identityEnd(callerIdentity)) {
					ended <- err
					return
				}
			}
		}()
		start, last := time.Now(), time.Now()
		for time.Since(start) < 72*time.Hour {
			if time.Since(last) >= 16*time.Hour {
				last = time.Now()
				own.issue()
				caller.issue()
			}
			if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatalf("after %s: %v", time.Since(start), err)
			}
			time.Sleep(10 * time.Minute)
		}
		select {
		case err := <-ended:
			t.Fatalf("the stream could not be started again: %v", err)
		default:
		}
		t.Logf("%d connections in 3 days", connects.Load())

		own.issue()
		time.Sleep(time.Until(identityEnd(callerIdentity)) + time.Minute)
		if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err == nil {
			t.Error("a call succeeds after the end of the client's certificate")
		}
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestCallsAfterTheEndAreRefused makes calls over connections that a server has not closed yet.
func TestCallsAfterTheEndAreRefused(t *testing.T) {
	authorizer := NewAuthorizer(ClusterService, []Rule{
		{Server: ClusterService, Protocol: GRPC, Method: grpc_health_v1.Health_Check_FullMethodName, Clients: []Grant{{Client: Frontend}}},
		{Server: ClusterService, Protocol: HTTP, Method: "GET /healthz", Clients: []Grant{{Client: Frontend}}},
	}, nil)
	for name, c := range map[string]struct {
		end  time.Duration
		code codes.Code
		http int
	}{"before the end": {time.Hour, codes.OK, http.StatusOK}, "after the end": {-time.Second, codes.Unauthenticated, http.StatusUnauthorized}} {
		t.Run(name, func(t *testing.T) {
			state := connectionOf(Frontend)
			state.PeerCertificates[0].NotAfter = time.Now().Add(c.end)
			ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
			_, err := authorizer.unary(ctx, &grpc_health_v1.HealthCheckRequest{}, &grpc.UnaryServerInfo{FullMethod: grpc_health_v1.Health_Check_FullMethodName},
				func(context.Context, any) (any, error) { return nil, nil })
			if status.Code(err) != c.code {
				t.Errorf("gRPC: %v, want %s", err, c.code)
			}
			request, recorder := httptest.NewRequest(http.MethodGet, "/healthz", nil), httptest.NewRecorder()
			request.TLS = &state
			authorizer.Handler(&Identity{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(recorder, request)
			if recorder.Code != c.http {
				t.Errorf("HTTP: %d, want %d", recorder.Code, c.http)
			}
		})
	}
}

// identityEnd returns the end of the certificate in use.
func identityEnd(i *Identity) time.Time { return i.own.Certificate().Leaf.NotAfter }
