// Package fleetclient connects hcpctl to Cluster Service, for what operators of the region do below ARM: with the SPIFFE
// identity of hcpctl, which whoever may read its folder has. What is done is Cluster Service's to decide and to record.
package fleetclient

import (
	"fmt"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Client is Cluster Service's API and its connection.
type Client struct {
	csv1.ClusterServiceClient
	conn *grpc.ClientConn
}

// New prepares a connection to an address with the identity in a folder; it does not connect.
func New(address, identityDir string) (*Client, error) {
	identity, err := mesh.LoadIdentity(identityDir)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService))))
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to Cluster Service: %w", err)
	}
	return &Client{ClusterServiceClient: csv1.NewClusterServiceClient(conn), conn: conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
