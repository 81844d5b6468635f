package grpcserver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// The limits of all gRPC servers. The transport of the region limits the age of connections, and the streams of a workload.
const (
	// handshakeTimeout bounds the TLS handshake and the beginning of HTTP/2. requestTimeout bounds the arrival of the request of a unary call.
	handshakeTimeout = 10 * time.Second
	requestTimeout   = time.Minute
	// maxConnections is the maximum of connections. The clients are replicas of workloads, which have one connection each.
	maxConnections = 1024
	// maxConnectionCalls is the maximum of concurrent calls and streams of one connection.
	maxConnectionCalls = 1000
	// maxHeader bounds the metadata of a call in bytes. The largest is the intent of an engineer.
	maxHeader = 64 << 10
	// minPing is the least time between two pings of a client. A connection with more frequent ones is closed.
	minPing = 5 * time.Second
)

// New returns a server with the limits of all gRPC servers, which waits for its handlers when it stops. The options add to them, and win over them. Serve
// adds the maximum of connections.
func New(options ...grpc.ServerOption) *grpc.Server {
	var server *grpc.Server
	unary := sync.OnceValue(func() map[string]bool { return unaryMethods(server) })
	server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxConnectionCalls),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
			if unary()[call.FullMethodName] {
				ctx = awaitRequest(ctx)
			}
			return ctx, nil
		}),
		grpc.ChainUnaryInterceptor(requestArrived),
	}, options...)...)
	return server
}

// unaryMethods returns the full names of the unary methods of a server.
func unaryMethods(server *grpc.Server) map[string]bool {
	names := map[string]bool{}
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			names["/"+service+"/"+method.Name] = !method.IsClientStream && !method.IsServerStream
		}
	}
	return names
}

// requestKey is the key of the timer of requestTimeout in the context of a unary call.
type requestKey struct{}

// awaitRequest returns the context of a call that ends unless the request arrives within requestTimeout: gRPC reads the request before it calls the first
// interceptor.
func awaitRequest(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(requestTimeout, func() { cancel(context.DeadlineExceeded) })
	context.AfterFunc(ctx, func() { timer.Stop() })
	return context.WithValue(ctx, requestKey{}, timer)
}

// requestArrived is a unary interceptor that ends the wait for the request.
func requestArrived(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if timer, ok := ctx.Value(requestKey{}).(*time.Timer); ok {
		timer.Stop()
	}
	return handle(ctx, request)
}
