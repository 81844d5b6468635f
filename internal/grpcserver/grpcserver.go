// Package grpcserver has the limits of all gRPC servers. It serves gRPC until a context ends, without failing calls that can complete.
package grpcserver

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Serve serves on a listener until ctx ends. Then it accepts no new calls and tells clients to connect elsewhere. Calls in progress have
// up to grace to complete; after that they fail with UNAVAILABLE. Serve closes the listener. The error is nil if ctx has ended. Connections beyond
// maxConnections are closed at once.
func Serve(ctx context.Context, server *grpc.Server, listener net.Listener, grace time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(process.LimitConnections(listener, maxConnections)) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	timer := time.AfterFunc(grace, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	<-served
	return nil
}

// EndStreams returns an option that ends all streams when ctx ends. A client gets UNAVAILABLE and starts the stream again at another
// replica. Without the option, streams that never end by themselves, such as watches, delay the end of Serve.
func EndStreams(ctx context.Context) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		streaming, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		err := handle(server, &endedStream{ServerStream: stream, ctx: streaming})
		if ctx.Err() != nil && stream.Context().Err() == nil && status.Code(err) != codes.Unavailable {
			return status.Error(codes.Unavailable, "the server stops")
		}
		return err
	})
}

// endedStream is a stream with another context.
type endedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endedStream) Context() context.Context { return s.ctx }
