// Package clusterservice connects the frontend, the backend and admin to Cluster Service. It holds the connection, and the
// only translation between Cosmos DB documents and Cluster Service's requests and reports.
//
// The frontend and the backend both send the request of an accepted document. The first one takes effect and the other
// changes nothing, because requests are keyed by UID and generation and the translation is a pure function. A value that
// the translation does not support is an error in both directions. Failed calls return an *apierror.Error.
package clusterservice

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The reasons of Cluster Service's errors that callers act on.
const (
	ReasonUIDDeleted        = "UID_DELETED"
	ReasonResourceIDInUse   = "RESOURCE_ID_IN_USE"
	ReasonClusterUnknown    = "CLUSTER_UNKNOWN"
	ReasonClusterDeleting   = "CLUSTER_DELETING"
	ReasonRevisionCompacted = "REVISION_COMPACTED"
	// ReasonRevocationInProgress reports that the credentials of the class are being revoked.
	ReasonRevocationInProgress = "REVOCATION_IN_PROGRESS"
	// ReasonCallDone reports that a call with the same CallIDKey took effect before.
	ReasonCallDone = "CALL_DONE"
)

// CallIDKey is the metadata key of a call's ID. Cluster Service executes a call of a caller with an ID at most once;
// it is for calls whose requests have no UID. The ID of a call with an intent is that of the intent's operation.
const CallIDKey = "hcpmesh-call-id"

// Dial creates a connection to the Cluster Service at address (host:port) with the process's identity. It does not wait
// for the connection: while the server is unreachable, calls fail at once with kind Unavailable. The connection recovers
// within about a second after the server is back. The options, for example of tracing, are added to those of the connection.
func Dial(_ context.Context, address string, identity mesh.Transport, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, append(options,
		grpc.WithTransportCredentials(identity.ClientCredentials(mesh.ClusterService)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// A watch can be silent for a long time; pings detect that its server is gone.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to Cluster Service at %s: %w", address, err)
	}
	return connection, nil
}

// ReadinessCheck returns a readiness check of a connection created by Dial. The check sends a request, because the connection to a
// hung Cluster Service stays open.
func ReadinessCheck(connection *grpc.ClientConn) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := grpcserver.CheckHealth(ctx, connection); err != nil {
			return fmt.Errorf("asking Cluster Service: %w", err)
		}
		return nil
	}
}

// Client calls Cluster Service with documents and returns its reports. Callers set the deadline in the context. It is
// safe for concurrent use.
type Client struct {
	rpc clusterservicev1.ClusterServiceClient
	// withoutRecovery is set in a Client that must not restore lost clusters.
	withoutRecovery bool
}

// NewClient returns a Client that uses connection.
func NewClient(connection grpc.ClientConnInterface) *Client {
	return &Client{rpc: clusterservicev1.NewClusterServiceClient(connection)}
}

// WithoutRecovery returns a Client that never restores a cluster that Cluster Service lost. The frontend uses it: its rule in package
// mesh does not allow recovery data. The backend restores the cluster.
func (c *Client) WithoutRecovery() *Client { return &Client{rpc: c.rpc, withoutRecovery: true} }

// call sends a request and translates the response.
func call[Q, R any](ctx context.Context, request Q, send func(context.Context, Q, ...grpc.CallOption) (R, error), read func(R) (Report, error)) (Report, error) {
	response, err := send(ctx, request)
	if err != nil {
		return Report{}, apierror.FromGRPC(err)
	}
	return read(response)
}

// ApplyCluster sends the desired state of the document's generation.
func (c *Client) ApplyCluster(ctx context.Context, document *database.ClusterDocument) (Report, error) {
	request, err := ClusterRequest(document)
	if err != nil {
		return Report{}, err
	}
	if c.withoutRecovery && request.GetRecovery() != nil {
		// Without recovery data, a lost cluster would get a second control plane.
		request.Recovery, request.MustExist = nil, true
	}
	return call(ctx, request, c.rpc.ApplyCluster, ClusterReport)
}

// DeleteCluster requests the deletion of the document's incarnation.
func (c *Client) DeleteCluster(ctx context.Context, document *database.ClusterDocument) (Report, error) {
	return call(ctx, DeleteClusterRequest(document), c.rpc.DeleteCluster, ClusterReport)
}

// GetCluster returns the report of an incarnation. It returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetCluster(ctx context.Context, uid string) (Report, error) {
	return call(ctx, &clusterservicev1.GetClusterRequest{Uid: uid}, c.rpc.GetCluster, ClusterReport)
}

// ApplyNodePool sends the desired state of the document's generation.
func (c *Client) ApplyNodePool(ctx context.Context, document *database.NodePoolDocument) (Report, error) {
	request, err := NodePoolRequest(document)
	if err != nil {
		return Report{}, err
	}
	return call(ctx, request, c.rpc.ApplyNodePool, NodePoolReport)
}

// DeleteNodePool requests the deletion of the document's incarnation.
func (c *Client) DeleteNodePool(ctx context.Context, document *database.NodePoolDocument) (Report, error) {
	return call(ctx, DeleteNodePoolRequest(document), c.rpc.DeleteNodePool, NodePoolReport)
}

// GetNodePool returns the report of an incarnation. It returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetNodePool(ctx context.Context, uid string) (Report, error) {
	return call(ctx, &clusterservicev1.GetNodePoolRequest{Uid: uid}, c.rpc.GetNodePool, NodePoolReport)
}

// ApplyExternalAuth sends the desired state of the document's generation.
func (c *Client) ApplyExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (Report, error) {
	request, err := ExternalAuthRequest(document)
	if err != nil {
		return Report{}, err
	}
	return call(ctx, request, c.rpc.ApplyExternalAuth, ExternalAuthReport)
}

// DeleteExternalAuth requests the deletion of the document's incarnation.
func (c *Client) DeleteExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (Report, error) {
	return call(ctx, DeleteExternalAuthRequest(document), c.rpc.DeleteExternalAuth, ExternalAuthReport)
}

// GetExternalAuth returns the report of an incarnation. It returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetExternalAuth(ctx context.Context, uid string) (Report, error) {
	return call(ctx, &clusterservicev1.GetExternalAuthRequest{Uid: uid}, c.rpc.GetExternalAuth, ExternalAuthReport)
}

// ApplyCredential requests the credential of a document.
func (c *Client) ApplyCredential(ctx context.Context, document *database.CredentialDocument) (Report, error) {
	return call(ctx, CredentialRequest(document), c.rpc.ApplyBreakGlassCredential, CredentialReport)
}

// GetCredential returns a credential, with its certificate if that was issued; see CredentialReport for its state. It
// returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetCredential(ctx context.Context, uid string) (*clusterservicev1.BreakGlassCredential, error) {
	credential, err := c.rpc.GetBreakGlassCredential(ctx, &clusterservicev1.GetBreakGlassCredentialRequest{Uid: uid})
	return credential, apierror.FromGRPC(err)
}

// GetCredentialReport returns the report of a credential. It returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetCredentialReport(ctx context.Context, uid string) (Report, error) {
	return call(ctx, &clusterservicev1.GetBreakGlassCredentialRequest{Uid: uid}, c.rpc.GetBreakGlassCredential, CredentialReport)
}

// RevokeCredentials requests the revocation that an operation stands for.
func (c *Client) RevokeCredentials(ctx context.Context, operation *database.OperationDocument) (Report, error) {
	return call(ctx, RevocationRequest(operation), c.rpc.RevokeBreakGlassCredentials, RevocationReport)
}

// GetRevocation returns the report of a revocation. It returns kind NotFound if Cluster Service does not know the UID.
func (c *Client) GetRevocation(ctx context.Context, uid string) (Report, error) {
	return call(ctx, &clusterservicev1.GetBreakGlassRevocationRequest{Uid: uid}, c.rpc.GetBreakGlassRevocation, RevocationReport)
}
