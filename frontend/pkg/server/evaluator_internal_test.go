package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

const (
	testGroup   = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/"
	testCluster = testGroup + "group/providers/" + hub.ClusterResourceType + "/cluster"
)

// fullBody returns a full body of testdata/bodies with the fields that a version has.
func fullBody(t testing.TB, file string, schema *schemamutation.Schema, version string) map[string]any {
	t.Helper()
	content := must.Get(os.ReadFile("../../testdata/bodies/" + file))(t)
	text := strings.NewReplacer("{{location}}", "westus3", "{{network}}", testGroup+"network/providers/Microsoft.Network",
		"{{identity}}", testGroup+"identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities",
		"{{subscription}}", "11111111-1111-1111-1111-111111111111").Replace(string(content))
	body := must.Get(wire.ParseObject([]byte(text)))(t)
	if version < "2025-12-23" && strings.HasPrefix(file, "cluster") {
		// The first version has the vault's name in the key.
		body = wire.MergePatch(body, parsed(t, `{"properties":{"etcd":{"dataEncryption":{"customerManaged":{"kms":{"activeKey":{"vaultName":"vault"}}}}}}}`))
	}
	return schema.Prune(body).(map[string]any)
}

func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	return must.Get(wire.ParseObject([]byte(text)))(t)
}

// clusterWithoutStore is clusterType without validation against other stored clusters.
type clusterWithoutStore struct{ clusterType }

var _ resourceType[database.ClusterDocument, hub.Cluster] = clusterWithoutStore{}

func (clusterWithoutStore) validateAgainstStore(*Server, context.Context, *request, *hub.Cluster, string) ([]apierror.Violation, error) {
	return nil, nil
}

func (clusterWithoutStore) validateChangeAgainstStore(*Server, context.Context, *request, *hub.Cluster, *hub.Cluster) ([]apierror.Violation, error) {
	return nil, nil
}

// resourceUnderTest is a resource type that the mutation tests cover.
type resourceUnderTest struct {
	name, definition string
	// get is the operation that returns the resource.
	get string
	// files are full bodies, which together have every property.
	files []string
	// newEvaluator returns an evaluator of the type at a version.
	newEvaluator func(t testing.TB, version *versions.Version) evaluator
}

// evaluator evaluates bodies of one resource type at one version, without a store.
type evaluator interface {
	// create returns the violations of a body for a new resource. It stores the resource if there are none.
	create(body map[string]any) []apierror.Violation
	// change returns the violations of a PUT or PATCH of the stored resource, and an evaluator with the changed resource.
	// The evaluator is nil if there are violations.
	change(body map[string]any, patch bool) (evaluator, []apierror.Violation)
	// shown returns the stored resource as the version encodes it.
	shown() map[string]any
	// at returns an evaluator of the same resource at another version.
	at(version *versions.Version) evaluator
	// differs returns the difference to the resource of another evaluator.
	differs(from evaluator) string
}

// resourceEvaluator implements evaluator.
type resourceEvaluator[D, R any] struct {
	t      testing.TB
	of     resourceType[D, R]
	server *Server
	rq     *request
	parent *database.ClusterDocument
	// settle applies the changes that the backend makes to a document.
	settle func(*D)
	stored D
}

func (c *resourceEvaluator[D, R]) propose(body map[string]any, patch bool) *proposal {
	p := &proposal{content: content{fields: schemamutation.Clone(body).(map[string]any), patch: patch}, uid: "22222222-2222-2222-2222-222222222222"}
	if c.parent != nil {
		p.parent = &database.Item[database.ClusterDocument]{Value: *c.parent}
	}
	return p
}

func (c *resourceEvaluator[D, R]) create(body map[string]any) []apierror.Violation {
	var document D
	to := c.of.fields(&document)
	resource, violations, err := decodeNew(c.server, context.Background(), c.rq, c.of, c.propose(body, false), to.resource, time.Time{})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(violations) > 0 {
		return violations
	}
	*to.resource, *to.state = *resource, hub.Succeeded
	if c.settle != nil {
		c.settle(&document)
	}
	c.stored = c.restored(document)
	return nil
}

func (c *resourceEvaluator[D, R]) change(body map[string]any, patch bool) (evaluator, []apierror.Violation) {
	document := c.stored
	resource, violations, err := decodeChanged(c.server, context.Background(), c.rq, c.of, c.propose(body, patch), &document, time.Time{})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(violations) > 0 {
		return nil, violations
	}
	*c.of.fields(&document).resource = *resource
	after := *c
	after.stored = c.restored(document)
	return &after, nil
}

// restored returns a document as the store returns it.
func (c *resourceEvaluator[D, R]) restored(document D) (stored D) {
	text := must.Get(json.Marshal(document))(c.t)
	must.Do(c.t, json.Unmarshal(text, &stored))
	return stored
}

func (c *resourceEvaluator[D, R]) at(version *versions.Version) evaluator {
	other, rq := *c, *c.rq
	rq.version = version
	other.rq = &rq
	return &other
}

func (c *resourceEvaluator[D, R]) differs(from evaluator) string {
	other := from.(*resourceEvaluator[D, R])
	if reflect.DeepEqual(c.stored, other.stored) {
		return ""
	}
	return cmp.Diff(c.stored, other.stored)
}

func (c *resourceEvaluator[D, R]) shown() map[string]any {
	text := must.Get(marshal(c.of.encode(c.rq.version, &c.stored)))(c.t)
	return parsed(c.t, string(text))
}

func newResourceEvaluator[D, R any](t testing.TB, of resourceType[D, R], version *versions.Version, child string, parent *database.ClusterDocument, settle func(*D)) evaluator {
	t.Helper()
	offer := must.Get(config.Default())(t)
	s := &Server{Config: Config{Rules: validation.NewRules(offer, "westus3"), Offer: offer, Location: "westus3"}}
	rq := &request{
		http: httptest.NewRequest(http.MethodPut, "/", nil), version: version, resourceID: testCluster,
		subscription: &hub.Subscription{State: hub.Registered},
	}
	rq.match.params[subscriptionParam], rq.match.params[resourceGroupParam], rq.match.params[clusterParam] = path.Base(path.Dir(path.Dir(testGroup))), "group", "cluster"
	if child != "" {
		rq.match.params[childParam] = path.Base(child)
		rq.resourceID += child
	}
	return &resourceEvaluator[D, R]{t: t, of: of, server: s, rq: rq, parent: parent, settle: settle}
}

// parentCluster returns the cluster of the child resources under test.
func parentCluster(t testing.TB) *database.ClusterDocument {
	t.Helper()
	newest := version.Newest().Name
	schema := resourceSchema(t, newest, "HcpOpenShiftCluster")
	judge := newResourceEvaluator(t, clusterWithoutStore{}, versions.All()[newest], "", nil, withRunningControlPlane).(*resourceEvaluator[database.ClusterDocument, hub.Cluster])
	if violations := judge.create(fullBody(t, "cluster-full.json", schema, newest)); len(violations) > 0 {
		t.Fatal(violations)
	}
	return &judge.stored
}

// withRunningControlPlane sets the versions that the control plane runs.
func withRunningControlPlane(d *database.ClusterDocument) {
	d.Status.ActiveVersions = []string{d.Cluster.Properties.Version.ID + ".9"}
}

func resourceSchema(t testing.TB, version, definition string) *schemamutation.Schema {
	t.Helper()
	return must.Get(schemamutation.Resource(version, definition))(t)
}

// subjects returns the resource types under test.
func subjects() []resourceUnderTest {
	return []resourceUnderTest{
		{"cluster", "HcpOpenShiftCluster", "HcpOpenShiftClusters_Get", []string{"cluster-full.json"}, func(t testing.TB, version *versions.Version) evaluator {
			return newResourceEvaluator(t, clusterWithoutStore{}, version, "", nil, withRunningControlPlane)
		}},
		{"nodePool", "NodePool", "NodePools_Get", []string{"nodepool-full.json", "nodepool.json"}, func(t testing.TB, version *versions.Version) evaluator {
			return newResourceEvaluator(t, nodePoolType{}, version, "/nodePools/pool", parentCluster(t), nil)
		}},
		{"externalAuth", "ExternalAuth", "ExternalAuths_Get", []string{"external-auth-full.json"}, func(t testing.TB, version *versions.Version) evaluator {
			return newResourceEvaluator(t, externalAuthType{}, version, "/externalAuths/auth", parentCluster(t), nil)
		}},
	}
}
