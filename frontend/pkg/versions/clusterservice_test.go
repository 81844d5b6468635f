package versions_test

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestClusterServiceSupportsEveryValue: every enumeration value that a version accepts has a translation for Cluster
// Service. A value that is added to a table and not to internal/clusterservice fails here.
func TestClusterServiceSupportsEveryValue(t *testing.T) {
	const cluster = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/group/providers/" + hub.ClusterResourceType + "/cluster"
	translate := map[string]func(version *versions.Version, body *wire.Body) error{
		"HcpOpenShiftCluster": func(version *versions.Version, body *wire.Body) error {
			resource := version.DecodeCluster(body, &hub.Cluster{Resource: hub.Resource{ID: cluster}}, true)
			_, err := clusterservice.ClusterRequest(&database.ClusterDocument{Cluster: *resource})
			return err
		},
		"NodePool": func(version *versions.Version, body *wire.Body) error {
			_, err := clusterservice.NodePoolRequest(&database.NodePoolDocument{NodePool: *version.DecodeNodePool(body, &hub.NodePool{}, true)})
			return err
		},
		"ExternalAuth": func(version *versions.Version, body *wire.Body) error {
			_, err := clusterservice.ExternalAuthRequest(&database.ExternalAuthDocument{ExternalAuth: *version.DecodeExternalAuth(body, &hub.ExternalAuth{}, true)})
			return err
		},
	}
	tested := 0
	for name, schemas := range tables() {
		for definition, entries := range schemas {
			for _, entry := range entries {
				for _, value := range entry.Supported {
					tested++
					body := wire.NewBody(bodyWith(entry.Path, value))
					err := translate[definition](versions.All()[name], body)
					if len(body.Problems()) > 0 {
						t.Fatal(body.Problems())
					}
					if err == nil {
						continue
					}
					for _, violation := range apierror.As(err).Violations {
						if strings.Contains(violation.Message, "Unsupported value") {
							t.Errorf("%s of %s: %+v", entry.Path, name, violation)
						}
					}
				}
			}
		}
	}
	if tested < 100 {
		t.Errorf("the tables have only %d enumeration values", tested)
	}
}

// bodyWith returns a body with one value, at a path with [] after lists.
func bodyWith(path, value string) map[string]any {
	name, rest, nested := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	var inner any = value
	if nested {
		inner = bodyWith(rest, value)
	}
	if list {
		inner = []any{inner}
	}
	return map[string]any{name: inner}
}
