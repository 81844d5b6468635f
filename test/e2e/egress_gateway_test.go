package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheadertest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestEgressGateway assigns a link to a cluster and connects with its ID, as Azure's private link service does. The gateway follows the links: it
// refuses each host that the link does not have, and tries to resolve one that it has. The deletion of the cluster removes the link.
func TestEgressGateway(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	address := region.Endpoints().GatewayEgressConnect
	if address == "" {
		t.Skip("the region has no egress gateway")
	}
	d := newScenario(t, "11111111-0000-0000-0000-000000000042", "egress")

	const link = 536872312
	// host is a name that never resolves (RFC 6761), so that the test needs no network.
	const host = "registry.invalid"
	await := func(target string, want int) {
		t.Helper()
		eventually.Before(d.ctx, t, fmt.Sprintf("a connection to %s gets %d", target, want), func() error {
			status, err := connectThrough(d.ctx, t, address, link, target)
			if err == nil && status != want {
				return fmt.Errorf("it gets %d", status)
			}
			return err
		})
	}
	change := func(arguments ...string) {
		t.Helper()
		d.hcpctl(append(append([]string{"egress", "link"}, arguments...), "--as", "operator", "--reason", "nodes pull images", "--ticket", "INC-60")...)
	}
	await(host+":443", http.StatusForbidden)
	change("set", d.id, fmt.Sprint(link), "--host", host)
	await(host+":443", http.StatusBadGateway)
	await("other.invalid:443", http.StatusForbidden)
	await(host+":22", http.StatusForbidden)
	change("delete", fmt.Sprint(link))
	await(host+":443", http.StatusForbidden)
	change("set", d.id, fmt.Sprint(link), "--host", host)
	await(host+":443", http.StatusBadGateway)
	must.Do(t, d.c.Delete(d.ctx, d.id))
	await(host+":443", http.StatusForbidden)
}

// connectThrough asks the egress gateway for a connection to a target, through the private endpoint with a link ID, and returns the status.
func connectThrough(ctx context.Context, t *testing.T, gateway string, link uint32, target string) (int, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", gateway)
	if err != nil {
		return 0, err
	}
	defer func() { _ = connection.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	if _, err := fmt.Fprintf(connection, "%sCONNECT %s HTTP/1.1\r\n\r\n", proxyheadertest.Link(t, link), target); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, errors.Join(errors.New("reading the response of the egress gateway"), err)
	}
	return response.StatusCode, response.Body.Close()
}
