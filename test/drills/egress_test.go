package drills

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheadertest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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

// forgeLink writes a link without the intent of an engineer, with the right of the backend to write its document.
func forgeLink(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	const link, operation = 4_000_000_002, "forged"
	endpoints, now := r.Endpoints(), time.Now().UTC()
	db := must.Get(endpoints.OpenStore(ctx, "backend"))(t)
	document := database.EgressLinkDocument{ClusterUID: uuid.NewString(), ResourceID: r.customer.ClusterID(second), Hosts: []string{"quay.io"}, OperationID: operation, RequestTime: now}
	if _, err := db.AssignEgressLink(ctx, link, document, now); err != nil {
		t.Error(err)
	}
	return func() {
		defer db.Close()
		if err := db.WithdrawEgressLink(ctx, link, operation, time.Now().UTC()); err != nil {
			t.Error(err)
		}
	}
}
