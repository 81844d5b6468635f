package values

import (
	"net/url"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// The chart of MISE, with the name of its namespace and of its Service, the port of the Service, and the path at which it checks a request
// of a gateway. Istio appends the path of the request.
const (
	miseChart = "mise"
	misePort  = 8080
	misePath  = "/v1/EnvoyValidateRequest/*"
)

// CheckClient is a client of MISE.
type CheckClient struct {
	// Namespace and Account are the identity of the client. Pods are the labels of its pods.
	Namespace string            `json:"namespace"`
	Account   string            `json:"account"`
	Pods      map[string]string `json:"pods"`
	// Path is the path of its checks. A * at the end matches every text.
	Path string `json:"path"`
}

// miseValues returns the values of the chart of MISE. Its clients are the gateway of ARM and the frontend.
func miseValues(c *computation) any {
	c.workload = workload.Workload{Key: []string{miseChart}}
	checkURL := c.text("frontend", "authentication", "checkUrl")
	if check := c.check(); check == nil || check.Host != miseChart+"."+miseChart+".svc" || check.Port != misePort {
		c.fail("frontend.authentication.checkUrl: %q is not at the Service of the chart %s", checkURL, miseChart)
	}
	path := ""
	if parsed, err := url.Parse(checkURL); err == nil {
		path = parsed.Path
	}
	endpoint := c.text("telemetry", "otlpEndpoint")
	host, port, ok := addressIn(endpoint)
	namespace, inside := clusterNamespace(host)
	if !ok || !inside {
		c.fail("telemetry.otlpEndpoint: %q is no Service of the cluster, and the network of MISE allows no other collector", endpoint)
	}
	return map[string]any{
		"trustDomain": c.text("trustDomain"), "meshRevision": c.text("serviceCluster", "meshRevision"),
		"image":       c.image(),
		"replicas":    c.replicas(),
		"resources":   c.resources(c.path("resources")...),
		"application": map[string]string{"instance": c.text("endpoints", "authority") + "/", "clientId": c.own("applicationId"), "tenantId": c.text("tenantId")},
		"arm":         map[string]string{"authority": c.own("arm", "authority"), "audience": c.own("arm", "audience"), "applicationId": c.own("arm", "applicationId")},
		"tracing":     map[string]any{"endpoint": endpoint, "namespace": namespace, "port": port},
		"clients": []CheckClient{
			{workload.GatewayNamespace, workload.ARMGateway, map[string]string{"istio": "ingress-" + workload.ARMGateway}, misePath},
			{string(mesh.Frontend), string(mesh.Frontend), map[string]string{"app.kubernetes.io/name": string(mesh.Frontend)}, path},
		},
	}
}
