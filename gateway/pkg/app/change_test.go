package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const bindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"

// closeSession ends a session as admin does.
func (r *region) closeSession(id string) {
	r.t.Helper()
	must.Get(r.db.ChangeAccessSession(r.t.Context(), database.AccessSessionKey(clusterUID, id), func(v *database.AccessSessionDocument) (bool, error) {
		return v.End("bob", "ended by bob", time.Now().UTC()), nil
	}))(r.t)
}

// expire lets the credential of a session expire until a gateway has given all objects of the session an outcome.
func (r *region) expire(id string) {
	r.t.Helper()
	eventually.Soon(r.t, "the objects have outcomes", func() error {
		r.clock.Step(16 * time.Minute)
		if document, err := r.document(id); err != nil || document.Unresolved {
			return errors.Join(errors.New("one has none"), err)
		}
		return nil
	})
}

// outcomes waits until all objects of an ended session have an outcome, and returns these by verb and name, with the reasons.
func (r *region) outcomes(id string) map[string]string {
	r.t.Helper()
	found := map[string]string{}
	eventually.Soon(r.t, "the objects have outcomes", func() error {
		document, err := r.document(id)
		if err != nil {
			return err
		}
		if document.Unresolved {
			return fmt.Errorf("the objects are %+v", document.Objects)
		}
		clear(found)
		for _, o := range document.Objects {
			found[o.Verb+" "+o.Name] = strings.TrimSpace(string(o.Outcome) + " " + o.Reason)
		}
		return nil
	})
	return found
}

// TestAccessEndsWithSession uses kubectl to give a service account the role cluster-admin, with a real API server, and ends the session in each possible way. The
// service account has no access then. What the session has changed, or keeps on purpose, or protects with a finalizer, is named.
func TestAccessEndsWithSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *hostedRegion, g *gateway, session string, c *clusterservicev1.BreakGlassCredential){
		"closed": func(r *hostedRegion, _ *gateway, session string, _ *clusterservicev1.BreakGlassCredential) {
			r.closeSession(session)
		},
		"expired": func(r *hostedRegion, _ *gateway, _ string, _ *clusterservicev1.BreakGlassCredential) {
			r.clock.Step(15*time.Minute - 30*time.Second)
		},
		"revoked": func(r *hostedRegion, _ *gateway, _ string, c *clusterservicev1.BreakGlassCredential) {
			c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION
			r.report(c)
		},
		"stopped": func(r *hostedRegion, g *gateway, session string, _ *clusterservicev1.BreakGlassCredential) {
			g.stop()
			r.start()
			r.closeSession(session)
			r.expire(session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAccessEnds(t, name, end)
		})
	}
}

func testAccessEnds(t *testing.T, name string, end func(r *hostedRegion, g *gateway, session string, c *clusterservicev1.BreakGlassCredential)) {
	session, engineer := fmt.Sprintf("a0000000-0000-4000-8000-0000%08x", name[:4]), "binder-"+name
	r := newHostedRegion(t)
	bindings := r.admin.RbacV1().ClusterRoleBindings()
	object := func(suffix string) string {
		if suffix == "account" {
			return name + "-" + suffix
		}
		return name + " É" + suffix // names of bindings need an encoding in paths
	}
	existing := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: object("existing")}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	must.Get(bindings.Create(t.Context(), existing, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, suffix := range []string{"existing", "kept", "protected"} {
			_, _ = bindings.Patch(ctx, object(suffix), "application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
			_ = bindings.Delete(ctx, object(suffix), metav1.DeleteOptions{})
		}
	})
	g, c := r.opened(session, engineer, asAdmin)
	run := func(stdin string, arguments ...string) string {
		t.Helper()
		command := r.kubectl(g.url, session, engineer, arguments...)
		command.Stdin = strings.NewReader(stdin)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %s%v", arguments, out, err)
		}
		return string(out)
	}
	manifest := func(suffix, metadata string) string {
		return fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": %q, %s}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}`,
			object(suffix), metadata)
	}
	user := "system:serviceaccount:default:" + object("account")
	if out := run("", "create", "serviceaccount", object("account")); !strings.Contains(out, "Warning: The session gateway removes the object at the end of the session.") {
		t.Errorf("kubectl did not warn: %s", out)
	}
	run("", "create", "clusterrolebinding", object("bound"), "--clusterrole=cluster-admin", "--serviceaccount=default:"+object("account"))
	run("", "label", "clusterrolebinding", object("bound"), "a=b")
	run("", "create", "clusterrolebinding", object("tried"), "--clusterrole=view", "--dry-run=server")
	run(manifest("applied", `"labels": {"a": "b"}`), "apply", "--server-side", "-f", "-")
	run(manifest("kept", `"annotations": {"`+policy.KeepAnnotation+`": "repairs INC-1"}`), "create", "-f", "-")
	run(manifest("protected", `"finalizers": ["example.com/a"]`), "create", "-f", "-")
	run("", "patch", "clusterrolebinding", object("existing"), "--type=json", "-p", `[{"op": "add", "path": "/subjects", "value": [{"kind": "ServiceAccount", "name": "`+object("account")+`", "namespace": "default"}]}]`)
	allowed := func() bool {
		review := must.Get(r.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "kube-system"}}}, metav1.CreateOptions{}))(t)
		return review.Status.Allowed
	}
	eventually.Soon(t, "the service account has the role", func() error {
		if !allowed() {
			return errors.New("it has not")
		}
		return nil
	})
	end(r, g, session, c)
	const changed = "Left it existed before the request, or another request of the session created it and it was kept"
	want := map[string]string{"create " + object("account"): "Removed", "create " + object("bound"): "Removed", "patch " + object("bound"): "Removed", "patch " + object("applied"): "Removed",
		"create " + object("kept"): "Left the engineer keeps it: repairs INC-1", "create " + object("protected"): "Left it is being deleted, and exists until its finalizers are removed",
		"patch " + object("existing"): changed}
	if found := r.outcomes(session); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the outcomes are %v, want %v", found, want)
	}
	for _, suffix := range []string{"bound", "applied"} {
		if _, err := bindings.Get(t.Context(), object(suffix), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Error(errors.Join(fmt.Errorf("the binding %s exists", object(suffix)), err))
		}
	}
	if _, err := r.admin.CoreV1().ServiceAccounts("default").Get(t.Context(), object("account"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(errors.Join(errors.New("the service account exists"), err))
	}
	eventually.Soon(t, "the service account has no access", func() error {
		if allowed() {
			return errors.New("it has")
		}
		return nil
	})
	g.stop()
	// Each event of the API server has a record, also those of the removals.
	events := must.Get(r.events(engineer))(t)
	deletions := map[string]string{}
	left := 0
	for _, record := range r.trail.Records(t) {
		switch {
		case record.Action == "kubernetes.delete" && record.Outcome != audit.Started:
			deletions[record.Request] = record.Outcome
		case record.Action == "accessSessions.leave":
			left++
		}
	}
	if left != 3 || len(deletions) != 4 {
		t.Errorf("the audit has %d objects that were left, and the deletions %v", left, deletions)
	}
	for id, e := range events {
		if e.Verb == "delete" && deletions[id] == "" {
			t.Errorf("no record of %+v", e)
		}
	}
}

// TestRemovalsReportOnlyWhatWasSeen has an API server that responds in each way to changes and deletions. A change that was refused is none, one with a server error
// may have an effect, temporary failures of deletions are repeated, and what was not deleted is named with the reason. The document alone causes no deletion.
func TestRemovalsReportOnlyWhatWasSeen(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		var asked metav1.PartialObjectMetadata
		_ = json.Unmarshal(body, &asked)
		name := asked.Name
		if request.Method == http.MethodDelete {
			var options metav1.DeleteOptions
			name = strings.TrimPrefix(request.URL.Path, bindingsPath+"/")
			if err := json.Unmarshal(body, &options); err != nil || options.Preconditions == nil || string(*options.Preconditions.UID) != "uid-of-"+name {
				t.Errorf("the options of the deletion are %s", body)
			}
		}
		status, attempts := http.StatusCreated, 0
		for _, earlier := range r.arrived() {
			if earlier.Method == request.Method && earlier.URL.Path == request.URL.Path {
				attempts++
			}
		}
		switch name + " " + request.Method {
		case "refused POST":
			status = http.StatusConflict
		case "failed POST":
			status = http.StatusGatewayTimeout
		case "away DELETE":
			if status = http.StatusOK; attempts == 1 {
				status = http.StatusServiceUnavailable
			}
		case "removed DELETE":
			status = http.StatusNotFound
		case "replaced DELETE":
			status = http.StatusConflict
		case "denied DELETE":
			status = http.StatusForbidden
		}
		if request.Header.Get("Accept") != "application/json" || request.Header.Get("Accept-Encoding") != "" {
			t.Errorf("the headers are %v", request.Header)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"metadata": {"name": %[1]q, "uid": "uid-of-%[1]s"}}`, name)
	})
	for _, name := range []string{"refused", "failed", "away", "removed", "replaced", "denied", "../../../../api/v1/namespaces/default"} {
		response, body := g.send(http.MethodPost, "alice", alicePath+bindingsPath, fmt.Sprintf(`{"metadata": {"name": %q}}`, name), "Content-Type", "application/json", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1", "Accept-Encoding", "gzip")
		if warned := strings.Contains(response.Header.Get("Warning"), policy.KeepAnnotation); warned != (response.StatusCode == http.StatusCreated) {
			t.Errorf("%s: %d: %v: %s", name, response.StatusCode, response.Header, body)
		}
	}
	forged := database.AccessObject{Request: "forged", Verb: "create", Kind: "clusterrolebindings.rbac.authorization.k8s.io", Name: "forged"}
	must.Get(r.db.ChangeAccessSession(t.Context(), database.AccessSessionKey(clusterUID, aliceSession), func(v *database.AccessSessionDocument) (bool, error) {
		v.SetObject(forged)
		return true, nil
	}))(t)
	r.closeSession(aliceSession)
	eventually.Soon(t, "the gateway has the outcomes of what it has forwarded", func() error {
		document, err := r.document(aliceSession)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(document.Objects, func(o database.AccessObject) bool { return o.Outcome == "" }); len(document.Objects) != 7 || document.Objects[i].Name != "forged" {
			return fmt.Errorf("the objects are %+v", document.Objects)
		}
		return nil
	})
	r.expire(aliceSession)
	const noResponse = "Left it may exist: the gateway has no complete response of the API server"
	want := map[string]string{"create failed": noResponse, "create ../../../../api/v1/namespaces/default": noResponse, "create away": "Removed", "create removed": "Removed",
		"create replaced": "Left another object has its name now", "create denied": "Left the API server has answered its deletion with the status 403",
		"create forged": "Left it may exist: the process of the gateway that forwarded the request ended before it removed the object"}
	if found := r.outcomes(aliceSession); fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the outcomes are %v, want %v", found, want)
	}
	deleted := 0
	for _, request := range r.arrived() {
		if request.Method == http.MethodDelete {
			deleted++
		}
	}
	if deleted != 5 {
		t.Errorf("the API server got %d deletions", deleted)
	}
	eventually.Soon(t, "the metric has the outcomes", func() error {
		return testutil.GatherAndCompare(g.metrics, strings.NewReader(`
# HELP gateway_access_objects_total Objects that give access and that access sessions have created or changed, at the end of the session by outcome: removed, or left (it may exist).
# TYPE gateway_access_objects_total counter
gateway_access_objects_total{outcome="left"} 5
gateway_access_objects_total{outcome="removed"} 2
`), "gateway_access_objects_total")
	})
}

// TestChangeEndsNeitherWithClientNorSession cancels a request that gives access, and ends its session, while the API server has it. The gateway gets the response, and
// removes the object.
func TestChangeEndsNeitherWithClientNorSession(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	arrived, answer := make(chan struct{}), make(chan struct{})
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost {
			close(arrived)
			<-answer
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, `{"metadata": {"name": "a", "uid": "uid-of-a"}}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if response, err := g.open(ctx, http.MethodPost, "alice", alicePath+bindingsPath, `{"metadata": {"name": "a"}}`); err == nil {
			t.Errorf("the request was answered with the status %d", response.StatusCode)
			_ = response.Body.Close()
		}
	}()
	select {
	case <-arrived:
	case <-ended:
		t.Fatal("the API server did not get the request")
	}
	cancel()
	<-ended
	r.closeSession(aliceSession)
	g.await(aliceSession, database.AccessSessionEnded)
	eventually.Soon(t, "the session has ended on the replica", func() error {
		if response, body := g.send(http.MethodGet, "alice", alicePath+"/version", ""); response.StatusCode != http.StatusForbidden {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})
	close(answer)
	if found := r.outcomes(aliceSession); found["create a"] != "Removed" || len(found) != 1 {
		t.Errorf("the outcomes are %v", found)
	}
}

// TestNoAccessIsGivenUnnoted gives access while Cosmos DB is away, and more often than a session may.
func TestNoAccessIsGivenUnnoted(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	must.Get(r.db.ChangeAccessSession(t.Context(), database.AccessSessionKey(clusterUID, aliceSession), func(v *database.AccessSessionDocument) (bool, error) {
		for i := range database.MaxAccessObjects {
			v.SetObject(database.AccessObject{Request: fmt.Sprint(i), Outcome: database.AccessRemoved})
		}
		return true, nil
	}))(t)
	if response, body := g.send(http.MethodPost, "alice", alicePath+bindingsPath, "{}"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("at the maximum: %d: %s", response.StatusCode, body)
	}
	r.cosmos.InjectFault(t, faults.Rule{Container: "AccessSessions", Operations: []string{"read"}, Status: http.StatusForbidden})
	if response, body := g.send(http.MethodPost, "alice", alicePath+bindingsPath, "{}"); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, body), "cannot note") {
		t.Errorf("without Cosmos DB: %d: %s", response.StatusCode, body)
	}
	if arrived := r.arrived(); len(arrived) > 0 {
		t.Errorf("%d requests reached the API server", len(arrived))
	}
}
