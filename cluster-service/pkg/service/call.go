package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// maxCallID bounds the ID of a call.
const maxCallID = 128

// Calls is a unary interceptor that makes a call with an ID take effect once. A caller that died or lost the response
// repeats the call and gets the error ErrCallRepeated. It is for requests without a UID of their own.
//
// The ID of a call with an engineer's intent is that of the intent's operation, whatever the caller sent, so that an intent has
// its effect once.
func Calls(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if asked := intent.FromContext(ctx); asked != nil {
		if r, ok := request.(interface{ GetUid() string }); !ok || r.GetUid() != asked.OperationID {
			ctx = store.WithCallID(ctx, asked.OperationID)
		}
		return handle(ctx, request)
	}
	if ids := metadata.ValueFromIncomingContext(ctx, clusterservice.CallIDKey); len(ids) == 1 && ids[0] != "" && len(ids[0]) <= maxCallID {
		// A caller must not make the call of another one look repeated.
		ctx = store.WithCallID(ctx, string(mesh.ClientPeer(ctx))+"/"+ids[0])
	}
	return handle(ctx, request)
}
