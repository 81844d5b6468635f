// Package intent signs and verifies what an engineer asked for. admin signs an Intent for each action that it accepts: a
// compact JWS with ES256 (RFC 7515, RFC 7518) that names the engineer, the roles, the elevation, the reason, the action, its
// target and digests of its parameters. The backend verifies it before it executes the action, and Cluster Service before it
// serves a call of an engineer's class. Neither trusts the document or the request that it received.
//
// An intent is bound to one operation and to one call. It authorizes nothing else, so that a stolen intent can only repeat what
// was asked. Keys are a Tink keyset like the sealing keys; admin publishes the public keys as a JSON Web Key Set (RFC 7517).
// Intents never appear in logs, metrics or errors.
package intent

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
)

// MaxValidity limits the time between the request of an engineer and the start of its execution.
const MaxValidity = time.Hour

// Intent is what an engineer asked for.
type Intent struct {
	// OperationID is the ID of the admin operation. The intent is valid for no other operation.
	OperationID string
	// ObjectID and TenantID identify the engineer. Name is for display and audit records.
	ObjectID, TenantID, Name string
	// Roles are the roles that the engineer's groups gave.
	Roles []string
	// Elevation is the elevation that the engineer used.
	Elevation Elevation
	Reason    string
	Ticket    string
	// Action is the name of admin's route, for example clusters.pause.
	Action string
	Target Target
	// Parameters is the DigestJSON of the operation's parameters.
	Parameters string
	// Call is the call of Cluster Service that the action makes; nil if the action makes no call that needs an intent.
	Call *Call
	// IssuedAt and ExpiresAt have a precision of seconds. The execution of the action must start before ExpiresAt.
	IssuedAt, ExpiresAt time.Time
}

// Elevation is a temporary right of an engineer to a role.
type Elevation struct {
	ID   string
	Role string
	// ExpiresAt is when the elevation ends unless the engineer ends it before. It has a precision of seconds.
	ExpiresAt time.Time
	// Emergency is set if the elevation waived the approval of a second person.
	Emergency bool
}

// Target is the object of an action.
type Target struct {
	Kind       string `json:"kind"`
	ID         string `json:"id"`
	ResourceID string `json:"resourceId,omitempty"`
	ClusterUID string `json:"clusterUid,omitempty"`
}

// Call is one call of a gRPC method.
type Call struct {
	// Method is the full name, /package.Service/Method.
	Method string `json:"method"`
	// Digest is the Digest of the request.
	Digest string `json:"digest"`
}

// NewCall returns the call of a method with a request.
func NewCall(method string, request Message) (*Call, error) {
	digest, err := Digest(method, request)
	if err != nil {
		return nil, err
	}
	return &Call{Method: method, Digest: digest}, nil
}

// metadataKey is the key of an intent in the metadata of a gRPC call.
const metadataKey = "hcpmesh-intent"

// AppendToOutgoingContext returns a context whose gRPC calls carry a signed intent.
func AppendToOutgoingContext(ctx context.Context, signed string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, metadataKey, signed)
}

// OfIncomingContext returns the signed intent of a gRPC call; empty if it has none. A call with several intents has none that
// can be accepted: ok is false.
func OfIncomingContext(ctx context.Context) (signed string, ok bool) {
	switch values := metadata.ValueFromIncomingContext(ctx, metadataKey); len(values) {
	case 0:
		return "", true
	case 1:
		return values[0], true
	}
	return "", false
}

type contextKey struct{}

// NewContext returns a context with a verified intent.
func NewContext(ctx context.Context, verified *Intent) context.Context {
	return context.WithValue(ctx, contextKey{}, verified)
}

// FromContext returns the verified intent of the call that a server processes; nil if the call needed none and had none.
func FromContext(ctx context.Context) *Intent {
	verified, _ := ctx.Value(contextKey{}).(*Intent)
	return verified
}
