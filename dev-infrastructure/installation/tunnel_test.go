package installation_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// tunnelName is the chart, the namespace and the label of the pods of the agent of tunnels.
const tunnelName = string(mesh.GatewayTunnel)

// supplyTunnels gives the agent of tunnels the identity that the infrastructure has created for it, what its chart expects in its namespace, and the
// names of the session gateway and of Entra ID.
func (p *pipelines) supplyTunnels() {
	p.t.Helper()
	identity := p.management.text("managementCluster", "tunnel", "managedIdentity")
	p.management.target.ClientIDs[identity] = p.target.ClientIDs[identity]
	must.Do(p.t, p.entra.AddManagementCluster(p.ctx, p.management.outside))
	given := must.Get(p.outside.StampSecrets(p.management.target))(p.t)
	p.management.supplier.Given = given
	p.management.supply(tunnelName)
}

// useThroughTunnel lets the customer restrict the API of the cluster to a network of its own. An engineer then reads the cluster in an access session:
// the session gateway connects through the tunnel of the management cluster.
func (p *pipelines) useThroughTunnel() {
	p.t.Helper()
	p.restrictAPI("203.0.113.0/24")
	before := p.tunneledConnections()
	if listed := p.listNamespaces("access", "open", "demo"); !strings.Contains(listed, "namespace/kube-system") {
		p.t.Errorf("the session for the cluster listed %q", listed)
	}
	if after := p.tunneledConnections(); after == before {
		p.t.Errorf("no connection went through a tunnel: %v before and after", after)
	}
	p.log("an engineer read a cluster with a restricted API through the tunnel of its management cluster")
}

// useManagementCluster reads the management cluster as an engineer, in an access session: the agent of tunnels verifies the engineer's intent with admin's
// public keys, and issues a token.
func (p *pipelines) useManagementCluster() {
	p.t.Helper()
	if listed := p.listNamespaces("mc", "access", p.management.text("managementCluster", "name")); !strings.Contains(listed, "namespace/"+tunnelName) {
		p.t.Errorf("the session for the management cluster listed %q", listed)
	}
	p.log("an engineer read the management cluster in an access session")
}

// useServiceCluster reads the service cluster as an engineer, in an access session: gateway-grants verifies the engineer's intent with admin's public keys, and
// issues a token.
func (p *pipelines) useServiceCluster() {
	p.t.Helper()
	if listed := p.listNamespaces("sc", "access"); !strings.Contains(listed, "namespace/"+string(mesh.GatewayGrants)) {
		p.t.Errorf("the session for the service cluster listed %q", listed)
	}
	p.log("an engineer read the service cluster in an access session")
}

// listNamespaces returns what kubectl prints in an access session of an engineer.
func (p *pipelines) listNamespaces(session ...string) string {
	p.t.Helper()
	command := exec.CommandContext(p.ctx, p.hcpctl, append(session, "--for", "10m", "--as", "operator", "--reason", "the ingress is slow", "--ticket", "INC-42", "--state-dir="+p.dir,
		"--", "kubectl", "get", "namespaces", "--output=name", "--request-timeout=20s")...)
	programs := must.Get(filepath.Abs("../../.build/third-party/bin"))(p.t)
	command.Env = append(os.Environ(), "PATH="+programs+string(os.PathListSeparator)+filepath.Dir(p.hcpctl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	if err != nil {
		p.t.Errorf("%s %v: %v: %s", p.hcpctl, session, err, output)
	}
	return string(output)
}

// restrictAPI changes the authorized CIDRs of the cluster as its customer.
func (p *pipelines) restrictAPI(cidr string) {
	p.t.Helper()
	send := func(method, body string) (properties struct {
		ProvisioningState string `json:"provisioningState"`
		API               struct {
			AuthorizedCIDRs []string `json:"authorizedCidrs"`
		} `json:"api"`
	}) {
		p.t.Helper()
		request := must.Get(http.NewRequestWithContext(p.ctx, method, p.entra.URL()+demoCluster+"?api-version="+armAPIVersion, strings.NewReader(body)))(p.t)
		request.Header.Set("Authorization", "Bearer "+p.customerToken())
		request.Header.Set("Content-Type", "application/json")
		response := must.Get(p.outside.HTTPClient(p.entra.Address).Do(request))(p.t)
		defer func() { _ = response.Body.Close() }()
		var cluster struct{ Properties json.RawMessage }
		if err := json.NewDecoder(response.Body).Decode(&cluster); err != nil || response.StatusCode >= http.StatusMultipleChoices {
			p.t.Fatalf("%s of the cluster: %s, %v", method, response.Status, err)
		}
		must.Do(p.t, json.Unmarshal(cluster.Properties, &properties))
		return properties
	}
	send(http.MethodPatch, fmt.Sprintf(`{"properties":{"api":{"authorizedCidrs":[%q]}}}`, cidr))
	eventually.Before(p.ctx, p.t, "the restriction of the API", func() error {
		if stored := send(http.MethodGet, ""); stored.ProvisioningState != "Succeeded" || len(stored.API.AuthorizedCIDRs) != 1 || stored.API.AuthorizedCIDRs[0] != cidr {
			return fmt.Errorf("the cluster is %+v", stored)
		}
		return nil
	})
}

// tunneledConnections returns the number of connections that the agent of tunnels has received.
func (p *pipelines) tunneledConnections() float64 {
	p.t.Helper()
	sums := must.Get(p.tunnelSeries())(p.t)
	return sums["gateway_tunnel_connections_total"]
}

// awaitTunnels waits until the management cluster has a tunnel to each pod of the session gateway.
func (p *pipelines) awaitTunnels() {
	p.t.Helper()
	eventually.Before(p.ctx, p.t, "a tunnel to each pod of the session gateway", func() error {
		sums, err := p.tunnelSeries()
		pods := len(p.pods(string(mesh.GatewayAccess)))
		if connected := sums["gateway_tunnel_connected_replicas"]; err == nil && (pods == 0 || connected != float64(pods)) {
			err = fmt.Errorf("%v of %d pods have one", connected, pods)
		}
		return err
	})
}

// tunnelSeries returns the sum of the values of each metric of the agents of tunnels.
func (p *pipelines) tunnelSeries() (map[string]float64, error) {
	sums := map[string]float64{}
	for _, pod := range p.management.pods(tunnelName) {
		if err := p.management.addSeries(&pod, sums); err != nil {
			return nil, err
		}
	}
	return sums, nil
}
