package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestOnlyAllowedCallsPass makes each call of each server of the region as each workload, and as invalid clients, with certificates of the
// region's own authority. Exactly the calls that the authorization table allows pass. The requests are empty, so that an allowed call
// fails in the server and changes nothing.
func TestOnlyAllowedCallsPass(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	for _, process := range []string{"cluster-service", "maestro-server", "frontend"} {
		must.Do(t, region.AwaitReady(ctx, process))
	}
	endpoints := region.Endpoints()
	identities := meshtest.Open(t, filepath.Dir(endpoints.CAFile), "local")
	for _, c := range []struct {
		server   mesh.Peer
		address  string
		services []string
	}{
		{mesh.ClusterService, endpoints.ClusterService, []string{mesh.ClusterServiceAPI, mesh.HealthAPI}},
		{mesh.MaestroServer, endpoints.MaestroGRPC, []string{mesh.CloudEventsAPI, mesh.HealthAPI}},
	} {
		calls := meshtest.Calls(t, c.server, c.services...)
		want := tableOf(c.server, mesh.GRPC, func(method string) (string, bool) {
			return method, slices.ContainsFunc(calls, func(call meshtest.Call) bool { return call.Method == method })
		})
		if diff := cmp.Diff(want, identities.AllowedCalls(c.server, c.address, calls)); diff != "" {
			t.Errorf("allowed calls of %s (-table +server):\n%s", c.server, diff)
		}
	}
	for server, base := range map[mesh.Peer]string{mesh.MaestroServer: endpoints.MaestroREST, mesh.Frontend: "https://" + endpoints.Frontend} {
		requests := map[string]bool{}
		want := tableOf(server, mesh.HTTP, func(method string) (string, bool) {
			request := strings.NewReplacer("{", "", "}", "").Replace(method)
			if method == mesh.Unrouted {
				request = "GET /no/route"
			}
			requests[request] = true
			return request, true
		})
		var all []string
		for request := range requests {
			all = append(all, request)
		}
		if diff := cmp.Diff(want, identities.AllowedRequests(server, base, all)); diff != "" {
			t.Errorf("allowed requests of %s (-table +server):\n%s", server, diff)
		}
	}
	awaitAudit(t, "the servers have recorded the refusals", func(records map[string][]audit.Record) error {
		for server, want := range map[mesh.Peer]audit.Record{
			mesh.ClusterService: {Peer: string(mesh.MaestroServer), Action: mesh.Connect},
			mesh.MaestroServer:  {Peer: string(mesh.Admin), Action: "Publish"},
			mesh.Frontend:       {Peer: string(mesh.Backend), Action: mesh.Connect},
		} {
			if !slices.ContainsFunc(records[string(server)], func(r audit.Record) bool {
				return r.Peer == want.Peer && r.Action == want.Action && r.Outcome == audit.Refused
			}) {
				return fmt.Errorf("%s has no record of %s of %s", server, want.Action, want.Peer)
			}
		}
		return nil
	})
}

// tableOf returns the calls of a server that the authorization table allows for empty requests, each as workload and request. request
// returns the request for a method, and false to omit it.
func tableOf(server mesh.Peer, protocol mesh.Protocol, request func(method string) (string, bool)) []string {
	var allowed []string
	for _, rule := range mesh.Rules() {
		if rule.Server != server || rule.Protocol != protocol {
			continue
		}
		text, ok := request(rule.Method)
		if !ok {
			continue
		}
		for _, grant := range rule.Clients {
			// An empty request has no value that a condition permits, and carries no intent. A condition on the response does not
			// apply to an error.
			if c := grant.Condition; !c.Intent && (c.Field == "" || c.InResponse) {
				allowed = append(allowed, string(grant.Client)+" "+text)
			}
		}
	}
	slices.Sort(allowed)
	return allowed
}
