package agent_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant/granttest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
)

// grantRequest returns the request of the gateway for a session, after changes of the intent.
func grantRequest(t *testing.T, admin *intenttest.Admin, mode adminv1.AccessMode, changes ...func(*intent.Intent)) grant.Request {
	t.Helper()
	signed, parameters := admin.Session(t, adminv1.ActionShardSessionRequest, intent.Target{Kind: adminv1.TargetShard, ID: managementCluster}, mode, changes...)
	return grant.Request{Intent: signed, Parameters: parameters}
}

// granter returns the Granter of a management cluster, with the rights of the agent.
func granter(t *testing.T, cluster *kubeapitest.Cluster, admin *intenttest.Admin) grant.Granter {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.TunnelKubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	g, err := grant.NewGranter(config, grant.ManagementCluster(managementCluster), admin.Verifier)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTokensHaveRightsOfMode requests tokens through a tunnel from an agent with no more rights than it has in a management cluster, and uses them with a real API
// server, through the tunnel.
func TestTokensHaveRightsOfMode(t *testing.T) {
	cluster, admin := shared.Cluster(t), intenttest.New(t)
	r := newRegion(t, 1, nil)
	r.start(func(o *agent.Options) { o.Granter = granter(t, cluster, admin) })
	for _, mode := range []adminv1.AccessMode{adminv1.AccessRead, adminv1.AccessAdmin} {
		issued, err := r.replica(0).Grant(t.Context(), managementCluster, grantRequest(t, admin, mode))
		if err != nil {
			t.Fatal(err)
		}
		if until := time.Until(issued.ExpirationTime); until < 11*time.Minute || until > 12*time.Minute || issued.Mode != mode {
			t.Errorf("%s: the session has the mode %s and ends in %s", mode, issued.Mode, until)
		}
		granttest.Rights(t, issued, "gateway-tunnel", r.dialer(tunnel.APIServer))
	}
}

// TestIntentsForOtherActionsGetNoToken presents intents that do not permit a session with the management cluster.
func TestIntentsForOtherActionsGetNoToken(t *testing.T) {
	cluster, admin := shared.Cluster(t), intenttest.New(t)
	g := granter(t, cluster, admin)
	long := time.Now().Add(-13 * time.Minute).Truncate(time.Second)
	other := intenttest.New(t)
	for name, test := range map[string]struct {
		request grant.Request
		text    string
	}{
		"another management cluster": {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.Target.ID = "mgmt-2" }), "management cluster"},
		"a cluster":                  {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.Target.ClusterUID = "uid" }), "management cluster"},
		"another action":             {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.Action = adminv1.ActionAccessSessionRequest }), "another action"},
		"other parameters":           {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.Parameters = "x" }), "parameters"},
		"the mode admin as operator": {grantRequest(t, admin, adminv1.AccessAdmin, func(i *intent.Intent) { i.Elevation.Role = "operator" }), "break-glass"},
		"an unknown mode":            {grantRequest(t, admin, "write", func(i *intent.Intent) { i.Elevation.Role = "break-glass" }), "not supported"},
		"an old request":             {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.IssuedAt, i.ExpiresAt = long, long.Add(time.Hour) }), "ended"},
		"an ended intent": {grantRequest(t, admin, adminv1.AccessRead, func(i *intent.Intent) {
			i.IssuedAt, i.ExpiresAt = long, long.Add(time.Minute)
			i.Elevation.ExpiresAt = i.ExpiresAt
		}), "ended"},
		"another signer": {grantRequest(t, other, adminv1.AccessRead), "not one of admin's public keys"},
		"no intent":      {grant.Request{}, "not a JWS"},
	} {
		grant, _, err := g.Grant(t.Context(), test.request)
		if kind := apierror.KindOf(err); grant != nil || kind != apierror.PermissionDenied && kind != apierror.Invalid || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %q", name, err, test.text)
		}
	}
}

// refuser is a Granter that refuses, or cannot decide.
type refuser struct{ failure error }

func (f refuser) Grant(context.Context, grant.Request) (*grant.Grant, *intent.Intent, error) {
	return nil, nil, f.failure
}

func (refuser) Address() string { return "127.0.0.1:1" }

// TestRefusalsOfTokensAreFinal checks which errors of a request for a token the gateway repeats.
func TestRefusalsOfTokensAreFinal(t *testing.T) {
	for name, test := range map[string]struct {
		granter grant.Granter
		want    apierror.Kind
	}{
		"refused":           {refuser{intent.Mismatch("action")}, apierror.PermissionDenied},
		"cannot be decided": {refuser{apierror.New(apierror.Unavailable, "The keys cannot be fetched.")}, apierror.Unavailable},
		"no sessions":       {nil, apierror.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t, 1, nil)
			if _, err := r.replica(0).Grant(t.Context(), managementCluster, grant.Request{}); apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), "no working tunnel") {
				t.Errorf("without a tunnel: %v", err)
			}
			r.start(func(o *agent.Options) { o.Granter = test.granter })
			if _, err := r.replica(0).Grant(t.Context(), managementCluster, grant.Request{}); apierror.KindOf(err) != test.want {
				t.Errorf("%v, want the kind %v", err, test.want)
			}
			if test.granter == nil {
				if _, err := r.replica(0).Dial(t.Context(), managementCluster, tunnel.APIServer); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusNotFound)) && !strings.Contains(err.Error(), "404") {
					t.Errorf("the API server of a management cluster without sessions: %v", err)
				}
			}
		})
	}
}
