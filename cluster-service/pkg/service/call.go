package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

// maxCallID bounds the id of a call.
const maxCallID = 128

// Calls is the interceptor by which a call that carries an id has its effect once: a caller that died, or lost the answer,
// makes it again and is told that it was done. It is for the requests that have no uid of their own.
func Calls(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if ids := metadata.ValueFromIncomingContext(ctx, clusterservice.CallIDKey); len(ids) == 1 && ids[0] != "" && len(ids[0]) <= maxCallID {
		ctx = store.WithCallID(ctx, ids[0])
	}
	return handle(ctx, request)
}
