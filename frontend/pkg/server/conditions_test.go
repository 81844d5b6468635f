package server_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestConditionalReads reads each kind of resource that has an ETag with conditions.
func TestConditionalReads(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	cluster := y.cluster("cluster")
	y.mustDo(http.StatusCreated, http.MethodPut, cluster+"/nodePools/pool", y.body("nodepool.json", "{}"))
	y.mustDo(http.StatusCreated, http.MethodPut, cluster+"/externalAuths/auth", y.body("external-auth.json", "{}"))
	must.Do(t, y.finishOperations(context.Background()))
	catalogue := "/subscriptions/" + y.subscription + "/providers/Microsoft.RedHatOpenShift/locations/" + location
	_, _, list := y.do(http.MethodGet, catalogue+"/hcpOpenShiftVersions", "")
	for name, target := range map[string]string{
		"cluster": cluster, "node pool": cluster + "/nodePools/pool", "external authentication": cluster + "/externalAuths/auth", "subscription": "/subscriptions/" + y.subscription,
		"version": catalogue + "/hcpOpenShiftVersions/" + decode[listed](t, list).Value[0].Name, "role set": catalogue + "/hcpOperatorIdentityRoleSets/4.20",
	} {
		t.Run(name, func(t *testing.T) {
			y := y.in(t)
			etag := y.mustDo(http.StatusOK, http.MethodGet, target, "").Get("ETag")
			if etag == "" {
				t.Fatal("the resource has no ETag")
			}
			for _, tc := range []struct {
				reason  string
				status  int
				headers []string
			}{
				{"the client has the resource", http.StatusNotModified, []string{"If-None-Match", etag}},
				{"If-None-Match compares weakly", http.StatusNotModified, []string{"If-None-Match", "W/" + etag}},
				{"one of a list is enough", http.StatusNotModified, []string{"If-None-Match", `"other", ` + etag}},
				{"the resource exists", http.StatusNotModified, []string{"If-None-Match", "*"}},
				{"the client has another state", http.StatusOK, []string{"If-None-Match", `"other"`}},
				{"what is not an ETag matches nothing", http.StatusOK, []string{"If-None-Match", "other"}},
				{"the resource has the ETag", http.StatusOK, []string{"If-Match", etag}},
				{"the resource exists", http.StatusOK, []string{"If-Match", "*"}},
				{"the resource has another ETag", http.StatusPreconditionFailed, []string{"If-Match", `"other"`}},
				{"If-Match compares strongly", http.StatusPreconditionFailed, []string{"If-Match", "W/" + etag}},
				{"what is not an ETag matches nothing", http.StatusPreconditionFailed, []string{"If-Match", "other"}},
				{"If-Match is evaluated first", http.StatusPreconditionFailed, []string{"If-Match", `"other"`, "If-None-Match", etag}},
				{"both are evaluated", http.StatusNotModified, []string{"If-Match", etag, "If-None-Match", etag}},
			} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					want := tc.status
					if method == http.MethodHead && want == http.StatusOK {
						want = http.StatusNoContent
					}
					status, header, body := y.do(method, target, "", tc.headers...)
					if status != want || header.Get("ETag") != etag {
						t.Errorf("%s: %s with %q: %d, ETag %s, want %d, %s", tc.reason, method, tc.headers, status, header.Get("ETag"), want, etag)
					}
					if status == http.StatusNotModified && (body != "" || header.Get("Content-Type") != "") {
						t.Errorf("a response 304 has content: %v %s", header, body)
					}
				}
			}
		})
	}
	y.mustDo(http.StatusNotFound, http.MethodGet, y.cluster("absent"), "", "If-Match", "*")
	y.mustDo(http.StatusNotFound, http.MethodGet, y.cluster("absent"), "", "If-None-Match", "*")
	// A list has no ETag, so that no condition applies to it.
	if header := y.mustDo(http.StatusOK, http.MethodGet, cluster+"/nodePools", "", "If-None-Match", "*"); header.Get("ETag") != "" {
		t.Errorf("a list has the ETag %s", header.Get("ETag"))
	}
}

// TestHeadIsAllowedWhereverGetIs sends a HEAD to each route that has a GET, in each state of a subscription. It has the status of the
// GET, and 204 in place of 200: ARM's clients expect it of an existence check.
func TestHeadIsAllowedWhereverGetIs(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	s := y.casingScene(1)
	for _, state := range []hub.SubscriptionState{hub.Registered, hub.Warned, hub.Suspended, hub.Unregistered} {
		y.mustDo(http.StatusOK, http.MethodPut, "/subscriptions/"+y.subscription, `{"state":"`+string(state)+`","registrationDate":"now"}`)
		heads := 0
		for _, r := range documentedRoutes(t) {
			if r.method != http.MethodGet || r.path == "/healthz" || r.path == "/readyz" {
				continue
			}
			m := s.message(r)
			path := ""
			for _, segment := range m.segments {
				path += "/" + segment
			}
			got, getHeader, _ := y.do(http.MethodGet, path, "", s.caller()...)
			head, header, body := y.do(http.MethodHead, path, "", s.caller()...)
			want := got
			if got == http.StatusOK {
				want = http.StatusNoContent
			}
			if head != want || header.Get("ETag") != getHeader.Get("ETag") || want == http.StatusNoContent && body != "" {
				t.Errorf("HEAD %s of a subscription that is %s: %d %v, GET %d %v", r.path, state, head, header, got, getHeader)
			}
			if state != hub.Unregistered && got >= http.StatusBadRequest {
				t.Errorf("GET %s of a subscription that is %s: %d", r.path, state, got)
			}
			heads++
		}
		if heads < 12 {
			t.Errorf("only %d routes have a GET", heads)
		}
	}
}

// TestHeadKeepsThePrivateKey: a HEAD of a credential's result does not use up the private key, which is returned once.
func TestHeadKeepsThePrivateKey(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	header := y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/requestAdminCredential?api-version=2025-12-23-preview", "")
	must.Do(t, y.finishOperations(context.Background()))
	result := "/subscriptions/" + y.subscription + "/providers/Microsoft.RedHatOpenShift/locations/" + location + "/hcpOperationResults/" + lastSegment(header.Get("Location"))
	y.mustDo(http.StatusNoContent, http.MethodHead, result+"?api-version=2025-12-23-preview", "")
	y.mustDo(http.StatusOK, http.MethodGet, result+"?api-version=2025-12-23-preview", "")
	y.mustDo(http.StatusConflict, http.MethodGet, result+"?api-version=2025-12-23-preview", "")
}

// TestDeletionOfAChildOfADeletedCluster deletes a child that the deletion of its cluster has marked: the backend has canceled its
// operation. The new operation of the child ends with the cluster.
func TestDeletionOfAChildOfADeletedCluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	pool := y.cluster("cluster") + "/nodePools/pool"
	y.mustDo(http.StatusCreated, http.MethodPut, pool, y.body("nodepool.json", "{}"))
	must.Do(t, y.finishOperations(ctx))
	y.mustDo(http.StatusAccepted, http.MethodDelete, y.cluster("cluster"), "")
	item := must.Get(y.db.NodePools().Get(ctx, database.Key{SubscriptionID: y.subscription, ResourceID: pool}))(t)
	item.Value.ProvisioningState, item.Value.ActiveOperationID = hub.Deleting, "" // as the backend marks it
	batch := y.db.NewBatch(y.subscription)
	database.Replace(batch, item)
	must.Do(t, batch.Commit(ctx))
	first := y.mustDo(http.StatusAccepted, http.MethodDelete, pool, "").Get(armheader.AsyncOperation)
	second := y.mustDo(http.StatusAccepted, http.MethodDelete, pool, "").Get(armheader.AsyncOperation)
	if first == "" || first != second {
		t.Errorf("two deletions have the operations %s and %s", first, second)
	}
	for _, operation := range y.documents().operations {
		if operation.Value.OperationID == lastSegment(first) && (operation.Value.ResourceID != pool || operation.Value.Request != database.DeleteRequest || operation.Value.UID != item.Value.UID) {
			t.Errorf("the operation is %+v", operation.Value)
		}
	}
}
