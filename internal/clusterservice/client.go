// Package clusterservice is how the frontend and the backend speak to Cluster Service: the connection, and the one
// translation between hcpmesh's documents and Cluster Service's requests and reports.
//
// Both services send the same request for the same document, so that whichever is first wins and the other changes
// nothing: requests are keyed by uid and generation, and translating is a pure function. Errors come back as
// *apierror.Error.
package clusterservice

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Reasons of Cluster Service's errors that callers act on.
const (
	ReasonUIDDeleted        = "UID_DELETED"
	ReasonResourceIDInUse   = "RESOURCE_ID_IN_USE"
	ReasonClusterUnknown    = "CLUSTER_UNKNOWN"
	ReasonClusterDeleting   = "CLUSTER_DELETING"
	ReasonRevisionCompacted = "REVISION_COMPACTED"
	// ReasonCallDone is the answer to a call whose CallID had its effect before.
	ReasonCallDone = "CALL_DONE"
)

// CallIDKey is the metadata by which a call that has no uid in its request has its effect once.
const CallIDKey = "hcpmesh-call-id"

// Dial prepares a connection to the Cluster Service at address (host:port) under the process's identity. It does not
// wait for an answer: calls fail fast with kind Unavailable while nobody answers, and the connection comes back within
// about a second of the server. Further options, as those of tracing, are taken as they are.
func Dial(_ context.Context, address string, identity *mesh.Identity, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService))),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// A watch is silent for long stretches; pings find out that its server is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to Cluster Service at %s: %w", address, err)
	}
	return connection, nil
}

// ReadinessCheck returns a readiness check of a connection made by Dial. It connects an idle connection, and waits for the
// outcome as long as the context lasts.
func ReadinessCheck(connection *grpc.ClientConn) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for {
			state := connection.GetState()
			switch state {
			case connectivity.Ready:
				return nil
			case connectivity.Idle:
				connection.Connect()
			case connectivity.TransientFailure, connectivity.Shutdown:
				return fmt.Errorf("the connection to Cluster Service is in state %s", state)
			}
			if !connection.WaitForStateChange(ctx, state) {
				return fmt.Errorf("the connection to Cluster Service is in state %s", state)
			}
		}
	}
}

// Client calls Cluster Service with documents. Callers give the context its deadline.
type Client struct {
	rpc clusterservicev1.ClusterServiceClient
}

// NewClient makes a Client of a connection.
func NewClient(connection grpc.ClientConnInterface) *Client {
	return &Client{rpc: clusterservicev1.NewClusterServiceClient(connection)}
}

// ApplyCluster sends the desired state of the document's generation.
func (c *Client) ApplyCluster(ctx context.Context, document *database.ClusterDocument) (*clusterservicev1.Cluster, error) {
	request, err := ClusterRequest(document)
	if err != nil {
		return nil, err
	}
	report, err := c.rpc.ApplyCluster(ctx, request)
	return report, apierror.FromGRPC(err)
}

// DeleteCluster asks for the deletion of the document's incarnation.
func (c *Client) DeleteCluster(ctx context.Context, document *database.ClusterDocument) (*clusterservicev1.Cluster, error) {
	report, err := c.rpc.DeleteCluster(ctx, DeleteClusterRequest(document))
	return report, apierror.FromGRPC(err)
}

// GetCluster reads the report of an incarnation; kind NotFound when Cluster Service does not know it.
func (c *Client) GetCluster(ctx context.Context, uid string) (*clusterservicev1.Cluster, error) {
	report, err := c.rpc.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: uid})
	return report, apierror.FromGRPC(err)
}

// ApplyNodePool sends the desired state of the document's generation.
func (c *Client) ApplyNodePool(ctx context.Context, document *database.NodePoolDocument) (*clusterservicev1.NodePool, error) {
	report, err := c.rpc.ApplyNodePool(ctx, NodePoolRequest(document))
	return report, apierror.FromGRPC(err)
}

// DeleteNodePool asks for the deletion of the document's incarnation.
func (c *Client) DeleteNodePool(ctx context.Context, document *database.NodePoolDocument) (*clusterservicev1.NodePool, error) {
	report, err := c.rpc.DeleteNodePool(ctx, DeleteNodePoolRequest(document))
	return report, apierror.FromGRPC(err)
}

// GetNodePool reads the report of an incarnation; kind NotFound when Cluster Service does not know it.
func (c *Client) GetNodePool(ctx context.Context, uid string) (*clusterservicev1.NodePool, error) {
	report, err := c.rpc.GetNodePool(ctx, &clusterservicev1.GetNodePoolRequest{Uid: uid})
	return report, apierror.FromGRPC(err)
}
