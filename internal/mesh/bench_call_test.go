package mesh_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// BenchmarkCall measures a unary call over mutual TLS on loopback, with and without authorization.
func BenchmarkCall(b *testing.B) {
	region := meshtest.New(b)
	identity, authorizer := region.Identity(mesh.ClusterService), mesh.NewAuthorizer(mesh.ClusterService, mesh.Rules(), nil)
	for name, options := range map[string][]grpc.ServerOption{
		"Authorized": authorizer.ServerOptions(identity),
		"Connected":  {grpc.Creds(credentials.NewTLS(identity.ServerTLS(authorizer.Clients()...)))},
	} {
		b.Run(name, func(b *testing.B) {
			server := grpc.NewServer(options...)
			csv1.RegisterClusterServiceServer(server, echo{})
			client := csv1.NewClusterServiceClient(region.Dial(mesh.Backend, mesh.ClusterService, region.Serve(server)))
			for b.Loop() {
				must.Get(client.GetCluster(b.Context(), &csv1.GetClusterRequest{}))(b)
			}
		})
	}
}
