package mesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// connectionOf returns the state of a verified connection of a workload.
func connectionOf(workload Peer) tls.ConnectionState {
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{ID{TrustDomain: "local", Peer: workload}.URL()}, NotAfter: time.Now().Add(time.Hour)}}}
}

// BenchmarkUnary measures what authorization adds to a unary gRPC call, with and without a condition.
func BenchmarkUnary(b *testing.B) {
	authorizer := NewAuthorizer(ClusterService, Rules(), nil)
	customer := &csv1.BreakGlassCredential{Spec: &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER}}
	for name, method := range map[string]string{"Condition": csv1.ClusterService_GetBreakGlassCredential_FullMethodName, "NoCondition": csv1.ClusterService_DeleteCluster_FullMethodName} {
		b.Run(name, func(b *testing.B) {
			ctx := peer.NewContext(b.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: connectionOf(Frontend)}})
			info := &grpc.UnaryServerInfo{FullMethod: method}
			b.ReportAllocs()
			for b.Loop() {
				must.Get(authorizer.unary(ctx, customer, info, func(context.Context, any) (any, error) { return customer, nil }))(b)
			}
		})
	}
}

// BenchmarkHandler measures an HTTP request with and without authorization.
func BenchmarkHandler(b *testing.B) {
	respond := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	for name, handler := range map[string]http.Handler{"Authorized": NewAuthorizer(MaestroServer, Rules(), nil).Handler(&Identity{}, respond), "Connected": respond} {
		b.Run(name, func(b *testing.B) {
			request := httptest.NewRequest(http.MethodGet, "/api/maestro/v1/resource-bundles?size=1", nil)
			state := connectionOf(Admin)
			request.TLS = &state
			b.ReportAllocs()
			for b.Loop() {
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, request)
				if response.Code != http.StatusOK {
					b.Fatal(response.Code)
				}
			}
		})
	}
}
