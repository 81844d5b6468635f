package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// maestroClient calls both APIs of the Maestro server, as Cluster Service and admin do.
type maestroClient struct {
	grpcAddress, restURL, consumer        string
	clusterServiceIdentity, adminIdentity string
	clusterService, admin                 *mesh.Identity
	ports                                 usedPorts
}

func (c *maestroClient) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&c.grpcAddress, "grpc", "", "host:port of the gRPC API")
	flags.StringVar(&c.restURL, "rest", "", "URL of the REST API")
	flags.StringVar(&c.consumer, "consumer", "", "consumer of the bundles")
	flags.StringVar(&c.clusterServiceIdentity, "cluster-service", "", "identity folder of Cluster Service")
	flags.StringVar(&c.adminIdentity, "admin", "", "identity folder of admin")
}

func (c *maestroClient) calls() (map[string]call, error) {
	var err error
	if c.clusterService, err = mesh.LoadIdentity(c.clusterServiceIdentity); err != nil {
		return nil, err
	}
	if c.admin, err = mesh.LoadIdentity(c.adminIdentity); err != nil {
		return nil, err
	}
	kept, err := c.connect()
	if err != nil {
		return nil, err
	}
	calls := map[string]call{
		"publish": func(ctx context.Context) error { return c.publish(ctx, kept) },
		"publish on a new connection": func(ctx context.Context) error {
			on, err := c.connect()
			if err != nil {
				return err
			}
			defer func() { _ = on.Close() }()
			return c.publish(ctx, on)
		},
	}
	maps.Copy(calls, bothWays("list", &c.ports, func() *tls.Config { return c.admin.ClientTLS(mesh.MaestroServer) }, func() httpCall { return c.list }))
	return calls, nil
}

// connect returns a client of the gRPC API, which connects with its first call.
func (c *maestroClient) connect() (*maestro.Client, error) {
	transport := credentials.NewTLS(c.clusterService.ClientTLS(mesh.MaestroServer))
	dialer := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.ports.dial(ctx, "tcp", address) })
	return maestro.NewClient(c.grpcAddress, mesh.MaestroSource, transport, slog.New(slog.DiscardHandler), dialer)
}

// publish creates a bundle.
func (c *maestroClient) publish(ctx context.Context, on *maestro.Client) error {
	name := uuid.NewString()
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"load-%s","namespace":"default"}}`, name)
	_, err := on.Create(ctx, &maestro.Bundle{ID: name, Name: name, Consumer: c.consumer, Manifests: []json.RawMessage{json.RawMessage(manifest)}})
	return err
}

// list lists one bundle.
func (c *maestroClient) list(ctx context.Context, on *http.Client) error {
	_, err := request(ctx, on, http.MethodGet, c.restURL+maestroapi.RESTPath+"/resource-bundles?size=1", http.Header{}, nil, http.StatusOK)
	return err
}
