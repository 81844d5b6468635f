package portal

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// otherForms are the pages that request what is no admin operation, by the names of admin's routes.
var otherForms = map[string]string{
	"accessSessions.end": "POST /access-sessions/{session}/end", "silences.create": "POST /silences", "silences.end": "POST /silences/{silence}/end",
	"elevations.create": "POST /access/request", "elevations.approve": "POST /access/{elevation}/{transition}", "elevations.deny": "POST /access/{elevation}/{transition}",
	"elevations.activate": "POST /access/{elevation}/{transition}", "elevations.review": "POST /access/{elevation}/{transition}", "elevations.end": "POST /access/{elevation}/{transition}",
}

// notOffered are the routes of admin that change something and that the portal does not offer, with the reason.
var notOffered = map[string]string{
	adminv1.ActionCredentialRequest:            "The private key of a certificate must not leave the machine of the engineer: hcpctl creates it there.",
	adminv1.ActionAccessSessionRequest:         "A session is used with a kubeconfig that gets tokens from hcpctl, which requests both.",
	adminv1.ActionShardSessionRequest:          "As for the session of a cluster.",
	adminv1.ActionServiceClusterSessionRequest: "As for the session of a cluster.",
}

// filledForm are values of the fields of all forms.
var filledForm = url.Values{"duration": {"30m"}, "size": {"large"}, "step": {"hosted-cluster"}, "strategy": {"spread"}, "pool": {"workers"}, "replicas": {"3"}, "finalizers": {"backup.example.com/hook"}, "class": {"sre"},
	"credential": {"credential-1"}, "version": {"4.21.4"}, "nodePools": {"all"}, "gate": {"minor-version"}, "name": {"name"}, "maxConcurrent": {"1"}, "capacity": {"70"}, "settings": {"capacity"}, "clusters": {"5"}, "link": {"4001"}, "hosts": {"quay.io"}}

// TestEachChangeOfTheAPIIsOffered compares the routes of admin that change something with the actions of the portal. Each must be offered, or be
// named with a reason. The request of each action must be one of the route with its name.
func TestEachChangeOfTheAPIIsOffered(t *testing.T) {
	routes := http.NewServeMux()
	var changes []string
	for _, route := range server.Routes() {
		if route.Method == http.MethodGet {
			continue
		}
		changes = append(changes, route.Name)
		routes.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Route", route.Name) })
	}
	offered := map[string]bool{}
	o := object{ID: "id", Cluster: "id", Shard: &clusterservicev1.ProvisionShard{}}
	for _, a := range actions() {
		form := filledForm
		if a.Kind == kindShard {
			form = url.Values{"capacity": {"70"}, "settings": {"capacity"}, "version": {"7"}}
		}
		sent := o
		if a.Kind == kindRegion {
			sent = object{}
		}
		method, path, body, err := a.request(sent, form)
		if err != nil {
			t.Errorf("%s/%s: %v", a.Kind, a.Path, err)
			continue
		}
		content := must.Get(json.Marshal(body))(t)
		recorder := httptest.NewRecorder()
		routes.ServeHTTP(recorder, httptest.NewRequest(method, adminv1.Root+path, strings.NewReader(string(content))))
		if got := recorder.Header().Get("Route"); got != a.Name {
			t.Errorf("%s/%s requests %s %s, the route %q, want %q", a.Kind, a.Path, method, path, got, a.Name)
		}
		if !slices.ContainsFunc(objectKinds(), func(k objectKind) bool { return k.Path == a.Kind }) {
			t.Errorf("%s/%s: there is no such kind of objects", a.Kind, a.Path)
		}
		if a.Effect == "" || a.Title == "" || adminv1.ClassOf(a.Name) == "" {
			t.Errorf("%s/%s has no effect, title or class", a.Kind, a.Path)
		}
		offered[a.Name] = true
	}
	forms := slices.Concat((&Portal{}).elevationPages(), (&Portal{}).alertPages(), (&Portal{}).sessionPages())
	for _, name := range changes {
		pattern, other := otherForms[name]
		_, excepted := notOffered[name]
		switch {
		case other && !slices.ContainsFunc(forms, func(p signedInPage) bool { return p.pattern == pattern }):
			t.Errorf("%s: there is no page %s", name, pattern)
		case offered[name] && (other || excepted), other && excepted:
			t.Errorf("%s is offered, and is an exception", name)
		case !offered[name] && !other && !excepted:
			t.Errorf("the portal does not offer %s: add it to actions, or to notOffered with the reason", name)
		}
	}
	for _, table := range []map[string]string{otherForms, notOffered} {
		for name := range table {
			if !slices.Contains(changes, name) {
				t.Errorf("%s is no route of admin that changes something", name)
			}
		}
	}
}

// TestFormsOfAllActions opens the form of each action. Each states the effect, the role and the class, and has all fields.
func TestFormsOfAllActions(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.api.responses["/elevations"] = adminv1.ElevationList{}
	b := h.signedIn("oncall@example.com", "/me")
	for _, a := range actions() {
		path := formURL(a.Kind, objectOfKind[a.Kind], a.Path)
		page := b.get(path)
		if page.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", path, page.Status, page.body)
			continue
		}
		values := formValues(t, page.body)
		for _, f := range a.Fields {
			if !values.Has(f.Name) && f.Kind != adminv1.FieldCheck {
				t.Errorf("%s has no field %s", path, f.Name)
			}
		}
		for _, text := range []string{a.Effect, "role " + string(adminv1.ClassOf(a.Name).Role()), "class " + string(adminv1.ClassOf(a.Name))} {
			if !strings.Contains(page.body, html.EscapeString(text)) {
				t.Errorf("%s does not contain %q", path, text)
			}
		}
		if len(values.Get("key")) < 16 || !values.Has("reason") || !values.Has("ticket") {
			t.Errorf("%s has no idempotency key, reason or ticket: %v", path, values)
		}
	}
}

// objectOfKind are objects of the tests.
var objectOfKind = map[string]string{kindCluster: testUID, kindUpgrade: testUpgrade, kindPolicy: "nightly", kindShard: "mgmt-1", kindARMOperation: "o", kindOrphan: "orphan-1", kindAzureOrphan: "group-2", kindDrift: "drifted-1", kindSubscription: "00000000-0000-0000-0000-0000000000aa", kindEgressLink: "4001"}

// formValues returns what a browser sends of the form of an action without a change.
func formValues(t *testing.T, page string) url.Values {
	t.Helper()
	document := must.Get(html.Parse(strings.NewReader(page)))(t)
	values := url.Values{}
	attribute := func(n *html.Node, name string) (string, bool) {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val, true
			}
		}
		return "", false
	}
	inForm := false
	for n := range document.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "form" {
			class, _ := attribute(n, "class")
			inForm = strings.Contains(class, "pf-v6-c-form")
		}
		name, named := attribute(n, "name")
		if !inForm || !named {
			continue
		}
		switch n.Data {
		case "input":
			value, _ := attribute(n, "value")
			kind, _ := attribute(n, "type")
			if _, checked := attribute(n, "checked"); kind != "checkbox" || checked {
				values.Set(name, value)
			}
		case "textarea":
			values.Set(name, "")
			if n.FirstChild != nil {
				values.Set(name, n.FirstChild.Data)
			}
		case "select":
			for o := range n.Descendants() {
				_, selected := attribute(o, "selected")
				if value, _ := attribute(o, "value"); o.Data == "option" && (selected || !values.Has(name)) {
					values.Set(name, value)
				}
			}
		}
	}
	return values
}

// TestLinksLeadToPages follows each link of all pages. None may lead to a page that does not exist.
func TestLinksLeadToPages(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	followed := map[string]bool{}
	for name, path := range readPages {
		document := must.Get(html.Parse(strings.NewReader(b.get(path).body)))(t)
		for n := range document.Descendants() {
			if n.Type != html.ElementNode || n.Data != "a" {
				continue
			}
			target := ""
			for _, a := range n.Attr {
				if a.Key == "href" {
					target = a.Val
				}
			}
			if !strings.HasPrefix(target, "/") || followed[target] {
				continue
			}
			followed[target] = true
			if page := b.get(target); page.StatusCode == http.StatusNotFound && strings.Contains(page.body, "The portal has no such page.") || page.StatusCode >= http.StatusInternalServerError {
				t.Errorf("%s has a link to %s: %s", name, target, page.Status)
			}
		}
	}
	if len(followed) < 50 {
		t.Errorf("only %d links were followed", len(followed))
	}
}

// TestOffersSuitTheState checks which actions the pages offer.
func TestOffersSuitTheState(t *testing.T) {
	step := func(state clusterservicev1.DeletionStepState, kind string, finalizers ...string) []offer {
		return deletionOffers("uid", &clusterservicev1.DeletionStep{Name: "step", Kind: kind, State: state, Finalizers: finalizers})
	}
	running := clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	for name, tc := range map[string]struct {
		got  []offer
		want string
	}{
		"a running step":             {step(running, "hosted-cluster"), "Force deletion step"},
		"a step with finalizers":     {step(running, "hosted-cluster", "a/b", "c/d"), "Release finalizers, Force deletion step"},
		"a step of ARM":              {step(running, deletion.StepBillingEnded), ""},
		"a step that has ended":      {step(clusterservicev1.DeletionStepState_DELETION_STEP_STATE_DONE, "hosted-cluster"), ""},
		"an update of the customer":  {armOffers(adminv1.ARMOperation{OperationID: "o", Request: "Update", Status: "Updating"}), "Retry operation of the customer, Cancel operation of the customer"},
		"a deletion of the customer": {armOffers(adminv1.ARMOperation{OperationID: "o", Request: "Delete", Status: "Deleting"}), "Retry operation of the customer"},
		"an ended operation":         {armOffers(adminv1.ARMOperation{OperationID: "o", Request: "Update", Status: "Succeeded"}), ""},
		"an active shard":            {shardOffers(&clusterservicev1.ProvisionShard{Name: "s", State: clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE}), "Cordon, Drain, Change settings, Reset settings"},
		"a draining shard":           {shardOffers(&clusterservicev1.ProvisionShard{Name: "s", State: clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING}), "Uncordon, Drain, Change settings, Reset settings, Deregister"},
		"a cluster in deletion":      {clusterOffers(adminv1.Cluster{UID: "u", Verdict: "Deleting"}), "Retry deletion"},
		"an upgrade in progress":     {upgradeOffers(&clusterservicev1.Upgrade{Uid: "u"}), "Pause upgrade, Abort upgrade"},
	} {
		var titles []string
		for _, o := range tc.got {
			titles = append(titles, o.Title)
		}
		if got := strings.Join(titles, ", "); got != tc.want {
			t.Errorf("%s offers %q, want %q", name, got, tc.want)
		}
	}
}

// TestShardChangesAreBasedOnTheForm checks that only changed settings of a shard are sent, with the version that the form showed.
func TestShardChangesAreBasedOnTheForm(t *testing.T) {
	o := object{ID: "mgmt-1", Shard: &clusterservicev1.ProvisionShard{Capacity: 60, Zones: []string{"1", "2"}, Labels: map[string]string{"stage": "prod"}}}
	form := func(name, value string) url.Values {
		values := url.Values{"capacity": {"60"}, "zones": {"1, 2"}, "sizeClasses": {""}, "labels": {"stage=prod"}, "version": {"7"}}
		values.Set(name, value)
		return values
	}
	for name, tc := range map[string]struct {
		form url.Values
		want string
	}{
		"capacity":     {form("capacity", "70"), `{"capacity":70,"expectedVersion":"7"}`},
		"no zones":     {form("zones", ""), `{"zones":{},"expectedVersion":"7"}`},
		"size classes": {form("sizeClasses", "small large"), `{"sizeClasses":{"values":["small","large"]},"expectedVersion":"7"}`},
		"no labels":    {form("labels", ""), `{"labels":{},"expectedVersion":"7"}`},
		"nothing":      {form("capacity", "60"), "Nothing was changed."},
		"wrong labels": {form("labels", "prod"), `"prod" is not name=value.`},
	} {
		set := action{Kind: kindShard, Name: adminv1.ActionShardUpdate, body: shardSettings}
		_, _, body, err := set.request(o, tc.form)
		content, marshalErr := json.Marshal(body)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		got := strings.ReplaceAll(string(content), " ", "")
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
