package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/rulebook"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
)

// sentEvery selects the mutations of TestSchemaMutations that are sent as requests: every 13th.
const sentEvery = 13

// TestSchemaMutationRequests sends a part of the mutations of TestSchemaMutations as requests. The response to an
// invalid body is ARM's error with the invalid field, a preflight returns the same error, and the store does not
// change.
func TestSchemaMutationRequests(t *testing.T) {
	t.Parallel()
	book := must.Get(rulebook.Read("../../docs/validation.md"))(t)
	y := newHarness(t).newSubscription(t)
	y.createCluster("ready")
	before := y.documents()
	sent := 0
	for _, one := range []struct{ definition, file, patch, kind, name, target string }{
		{"HcpOpenShiftCluster", "cluster-full.json", "{}", "hcpOpenShiftClusters", "cluster", y.cluster("cluster")},
		{"NodePool", "nodepool-full.json", "{}", "hcpOpenShiftClusters/nodePools", "ready/pool", y.cluster("ready") + "/nodePools/pool"},
		{"ExternalAuth", "external-auth-full.json", "{}", "hcpOpenShiftClusters/externalAuths", "ready/auth", y.cluster("ready") + "/externalAuths/auth"},
	} {
		for offset, api := range version.All() {
			schema := must.Get(schemamutation.Resource(api.Name, one.definition))(t)
			body := y.body(one.file, one.patch)
			changes := schema.Mutations(parse(t, body), schemamutation.Samples{})
			for i := offset; i < len(changes); i += sentEvery {
				// TestSchemaMutations tests the mutations for which the service differs from the document.
				if change := changes[i]; !change.Allowed && !strings.HasPrefix(change.Path, "tags[") && !slices.Contains([]schemamutation.Kind{schemamutation.Null, schemamutation.Absent, schemamutation.Pattern}, change.Kind) {
					sent++
					y.mustReject(book, at(one.target, uint8(offset)), one.kind, one.name, api.Name, change.Apply(parse(t, body)), change.String())
				}
			}
		}
	}
	after := y.documents()
	if diff := cmp.Diff(etags(before), etags(after)); diff != "" {
		t.Errorf("rejected requests changed the store (-before +after):\n%s", diff)
	}
	t.Logf("%d mutations were sent", sent)
	if sent < 300 {
		t.Error("too few mutations")
	}
}

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	return must.Get(wire.ParseObject([]byte(text)))(t)
}

// etags returns the ETags of all documents.
func etags(d documents) map[string]string {
	all := map[string]string{}
	collect(all, d.clusters)
	collect(all, d.nodePools)
	collect(all, d.externals)
	collect(all, d.operations)
	collect(all, d.reservations)
	return all
}

func collect[D any](into map[string]string, items []*database.Item[D]) {
	for _, item := range items {
		into[item.Key.ResourceID] = item.ETag
	}
}

// fieldError is an ARM error.
type fieldError struct {
	Code, Message, Target string
	Details               []fieldError
}

var jsonPath = regexp.MustCompile(`(?s)^(location|tags|identity|name|type|properties|unknown)([.\[].*)?$`)

// mustReject sends a body that must be rejected, as a PUT and in a preflight.
func (y *testSubscription) mustReject(book rulebook.Book, target, kind, name, version string, fields map[string]any, what string) {
	y.t.Helper()
	body := must.Get(json.Marshal(fields))(y.t)
	status, header, answer := y.do(http.MethodPut, target, string(body))
	got := decode[struct{ Error fieldError }](y.t, answer).Error
	if status != http.StatusBadRequest || header.Get("X-Ms-Error-Code") != got.Code {
		y.t.Errorf("%.120s: status %d: %.300s", what, status, answer)
		return
	}
	all := got.Details
	switch got.Code {
	case "InvalidRequestContent":
		all = []fieldError{got}
	case "MultipleErrorsOccurred":
		if len(all) < 2 || got.Message == "" {
			y.t.Errorf("%.120s: several errors without details: %.300s", what, answer)
		}
	default:
		y.t.Errorf("%.120s: unexpected code %s", what, got.Code)
	}
	for _, one := range all {
		if one.Code != "InvalidRequestContent" || !jsonPath.MatchString(one.Target) || !book.Describes(one.Target, one.Message) {
			y.t.Errorf("%.120s: docs/validation.md has no %.300s", what, fmt.Sprintf("%+v", one))
		}
	}

	fields["type"], fields["name"], fields["apiVersion"] = "Microsoft.RedHatOpenShift/"+kind, name, version
	deployment := must.Get(json.Marshal(map[string]any{"resources": []any{fields}}))(y.t)
	status, _, answer = y.do(http.MethodPost, "/subscriptions/"+y.subscription+"/resourceGroups/group/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01", string(deployment))
	judged := decode[struct {
		Status string
		Error  fieldError
	}](y.t, answer)
	if judged.Status != "Failed" {
		y.t.Fatalf("%.120s: a preflight status %d: %.300s", what, status, answer)
	}
	// The resource's own error has the violations as its details.
	want := fieldError{Code: got.Code, Message: judged.Error.Message, Target: judged.Error.Target, Details: all}
	if diff := cmp.Diff(want, judged.Error); diff != "" {
		y.t.Errorf("%.120s: PUT and preflight differ (-PUT +preflight):\n%s", what, diff)
	}
}

// TestResponsesContainEmptyOperators: required maps of operators are present in responses even if they are empty, and a
// response can be sent back as a PUT.
func TestResponsesContainEmptyOperators(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	// A release of the service without role sets accepted a cluster without operators.
	cluster := must.Get(y.db.Clusters().Get(t.Context(), database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster("cluster")}))(t)
	operators := &cluster.Value.Cluster.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities
	operators.ControlPlaneOperators, operators.DataPlaneOperators = map[string]string{}, map[string]string{}
	batch := y.db.NewBatch(cluster.Key.SubscriptionID)
	database.Replace(batch, cluster)
	must.Do(t, batch.Commit(t.Context()))
	for offset := range version.All() {
		must.Do(t, y.finishOperations(context.Background()))
		_, _, shown := y.do(http.MethodGet, at(y.cluster("cluster"), uint8(offset)), "")
		y.mustDo(http.StatusOK, http.MethodPut, at(y.cluster("cluster"), uint8(offset)), shown)
	}
}

// TestNodePoolOfControlPlaneWithoutVersion: a node pool of a failed cluster may have no version yet. Responses still
// comply with the contract, and the pool accepts a version later.
func TestNodePoolOfControlPlaneWithoutVersion(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // in the documents a version has an ID; the service accepts requests without one
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	cluster := must.Get(y.db.Clusters().Get(t.Context(), database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster("cluster")}))(t)
	cluster.Value.ProvisioningState, cluster.Value.Status.ActiveVersions = hub.Failed, nil
	batch := y.db.NewBatch(cluster.Key.SubscriptionID)
	database.Replace(batch, cluster)
	must.Do(t, batch.Commit(t.Context()))
	pool := y.cluster("cluster") + "/nodePools/pool"
	y.mustDo(http.StatusCreated, http.MethodPut, pool, y.body("nodepool.json", `{"properties":{"version":{"channelGroup":"fast"}}}`))
	for offset := range version.All() {
		must.Do(t, y.finishOperations(context.Background()))
		_, _, shown := y.do(http.MethodGet, at(pool, uint8(offset)), "")
		y.mustDo(http.StatusOK, http.MethodPut, at(pool, uint8(offset)), shown)
		must.Do(t, y.finishOperations(context.Background()))
		y.mustDo(http.StatusAccepted, http.MethodPatch, at(pool, uint8(offset)), `{"properties":{"replicas":3}}`)
	}
	must.Do(t, y.finishOperations(context.Background()))
	y.mustDo(http.StatusAccepted, http.MethodPatch, pool, `{"properties":{"version":{"id":"4.20.8"}}}`)
}
