package mesh

import "context"

type peerKey struct{}

// ContextWithPeer returns a context with the verified identity of the caller.
func ContextWithPeer(ctx context.Context, id ID) context.Context {
	return context.WithValue(ctx, peerKey{}, id)
}

// PeerFromContext returns the verified identity of the caller. ok is false outside of a call that an Authorizer allowed.
func PeerFromContext(ctx context.Context) (id ID, ok bool) {
	id, ok = ctx.Value(peerKey{}).(ID)
	return id, ok
}

// ClientPeer returns the name of the calling workload; empty if there is no verified caller.
func ClientPeer(ctx context.Context) Peer {
	id, _ := PeerFromContext(ctx)
	return id.Peer
}

// ClientName returns the name of the caller for log records, for example frontend; empty if there is no verified caller.
func ClientName(ctx context.Context) string {
	id, _ := PeerFromContext(ctx)
	return string(id.Peer)
}
