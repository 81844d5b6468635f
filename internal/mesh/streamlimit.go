package mesh

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// MaxStreams is the most open streams of one workload at a gRPC server, over all its connections. All replicas of a workload share them.
const MaxStreams = 256

// streamLimit counts the open streams of each workload. It must follow the authorization, which verifies the workload.
type streamLimit struct {
	mu   sync.Mutex
	open map[Peer]int
}

func newStreamLimit() *streamLimit { return &streamLimit{open: map[Peer]int{}} }

// stream is a stream interceptor that refuses the streams of a workload above MaxStreams with RESOURCE_EXHAUSTED.
func (l *streamLimit) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	client := ClientPeer(stream.Context())
	if !l.add(client) {
		return apierror.ToGRPC(apierror.New(apierror.Throttled, "The workload %s has %d open streams, which is the limit.", client, MaxStreams), errorDomain)
	}
	defer l.remove(client)
	return handle(server, stream)
}

func (l *streamLimit) add(client Peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= MaxStreams {
		return false
	}
	l.open[client]++
	return true
}

func (l *streamLimit) remove(client Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}
