package drills

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheader/proxyheadertest"
)

// unknownLinks connects to the egress gateway through a private endpoint that belongs to no cluster.
func unknownLinks(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	const unassigned = 4_000_000_001
	address := r.Endpoints().GatewayEgressConnect
	return r.repeat(ctx, func(ctx context.Context) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
		defer func() { _ = connection.Close() }()
		_, _ = fmt.Fprintf(connection, "%sCONNECT quay.io:443 HTTP/1.1\r\n\r\n", proxyheadertest.Link(t, unassigned))
		_, _ = io.Copy(io.Discard, connection) // the gateway refuses it and closes the connection
	})
}
