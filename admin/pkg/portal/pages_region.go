package portal

import (
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// mapKeys returns the keys of a map.
func mapKeys(m map[string]string) iter.Seq[string] { return maps.Keys(m) }

// listQuery returns the query of a list of the API: the page, and the parameters of the page of the portal with the same names.
func listQuery(v *view, names ...string) url.Values {
	query := url.Values{"pageSize": {pageSize}}
	for _, name := range append(names, "pageToken") {
		if value := v.request.URL.Query().Get(name); value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// operationsView is the content of the list of admin operations.
type operationsView struct {
	Items       []adminv1.Operation
	State       adminv1.OperationState
	States      []adminv1.OperationState
	First, Next string
}

// operations lists the actions of engineers, the newest first.
func (p *Portal) operations(w http.ResponseWriter, v *view) {
	var list adminv1.OperationList
	if err := v.api.get("/operations", listQuery(v, "state"), &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body := operationsView{Items: list.Items, State: adminv1.OperationState(v.request.URL.Query().Get("state")),
		States: []adminv1.OperationState{adminv1.Accepted, adminv1.Running, adminv1.Succeeded, adminv1.Failed}}
	body.First, body.Next = pageLinks(v.request.URL, list.NextPageToken)
	v.render(w, http.StatusOK, "operations", page{Title: "Operations", Section: "/operations", Body: body, Live: livePath + "operations"})
}

// operation shows an admin operation. Its page follows the operation until it has ended.
func (p *Portal) operation(w http.ResponseWriter, v *view) {
	var operation adminv1.Operation
	if err := v.api.get("/operations/"+url.PathEscape(v.request.PathValue("operation")), nil, &operation); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	content := page{Title: actionTitle(operation.Action), Section: "/operations", Body: operation, Crumbs: []crumb{{"Operations", "/operations"}}}
	if !operation.State.Terminal() {
		content.Live = livePath + "operations/" + url.PathEscape(operation.ID)
	}
	v.render(w, http.StatusOK, "operation", content)
}

// deletionsView is the content of the list of deletions.
type deletionsView struct {
	Items    []adminv1.Deletion
	Stuck    bool
	Problems []problem
}

// deletions lists the deletions in progress, those with a stuck step first.
func (p *Portal) deletions(w http.ResponseWriter, v *view) {
	body := deletionsView{Stuck: v.request.URL.Query().Get("stuck") != ""}
	query := url.Values{}
	if body.Stuck {
		query.Set("stuck", "true")
	}
	var list adminv1.DeletionList
	if err := v.api.get("/deletions", query, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Items = list.Items
	slices.SortStableFunc(body.Items, func(a, b adminv1.Deletion) int {
		switch x, y := stuckStep(a) != nil, stuckStep(b) != nil; {
		case x == y:
			return a.DeleteTime.Compare(b.DeleteTime)
		case x:
			return -1
		}
		return 1
	})
	for _, layer := range slices.Sorted(mapKeys(list.Unavailable)) {
		body.Problems = append(body.Problems, problem{"The layer " + layer, list.Unavailable[layer]})
	}
	v.render(w, http.StatusOK, "deletions", page{Title: "Deletions", Section: "/deletions", Body: body})
}

// stuckStep returns the first stuck step of a deletion, or nil.
func stuckStep(d adminv1.Deletion) *clusterservicev1.DeletionStep {
	if d.Deletion.Of == nil {
		return nil
	}
	for _, step := range d.Deletion.Of.GetSteps() {
		if step.GetStuck() {
			return step
		}
	}
	return nil
}

// currentStep returns the step of a deletion that a list shows: a stuck one, or the first that runs; nil if none does.
func currentStep(d adminv1.Deletion) *clusterservicev1.DeletionStep {
	if step := stuckStep(d); step != nil || d.Deletion.Of == nil {
		return step
	}
	for _, step := range d.Deletion.Of.GetSteps() {
		if step.GetState() == clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
			return step
		}
	}
	return nil
}

// shards lists the provision shards.
func (p *Portal) shards(w http.ResponseWriter, v *view) {
	var list adminv1.ShardList
	if err := v.api.get("/shards", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "shards", page{Title: "Provision shards", Section: "/shards", Body: list.Items})
}

// shardView is the content of the page of a shard.
type shardView struct {
	Report *clusterservicev1.ProvisionShardReport
	Plan   *clusterservicev1.DrainPlan
	Offers []offer
	// Concerns are clusters of the shard that are not in their desired state.
	Concerns []adminv1.Cluster
	Problems []problem
}

// shard shows a provision shard, its waiting clusters, and where its clusters would go.
func (p *Portal) shard(w http.ResponseWriter, v *view) {
	name := v.request.PathValue("shard")
	var report adminv1.Message[*clusterservicev1.ProvisionShardReport]
	if err := v.api.get("/shards/"+url.PathEscape(name), nil, &report); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body := shardView{Report: report.Of, Offers: shardOffers(report.Of.GetProvisionShard())}
	var plan adminv1.Message[*clusterservicev1.DrainPlan]
	var concerns adminv1.ClusterList
	read := reader{view: v}
	read.get("Drain plan", "/shards/"+url.PathEscape(name)+"/drain-plan", nil, &plan)
	read.get("Waiting clusters", "/clusters", url.Values{"notReady": {"true"}, "shard": {name}, "pageSize": {"20"}}, &concerns)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Plan, body.Concerns = plan.Of, concerns.Items
	v.render(w, http.StatusOK, "shard", page{Title: name, Section: "/shards", Body: body, Crumbs: []crumb{{"Provision shards", "/shards"}}})
}

// shardOffers returns the actions that suit the state of a shard.
func shardOffers(shard *clusterservicev1.ProvisionShard) []offer {
	paths := []string{"uncordon", "drain", "set", "reset", "deregister"}
	switch shard.GetState() {
	case clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE:
		paths = []string{"cordon", "drain", "set", "reset"}
	case clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_DEREGISTERED:
		return nil
	}
	return offersOf(kindShard, shard.GetName(), paths...)
}

// elevationsView is the content of the list of elevations.
type elevationsView struct {
	Items []adminv1.Elevation
	// Filter is open, all or unreviewed.
	Filter      string
	First, Next string
}

// elevations lists elevations: by default those that are active or can become so.
func (p *Portal) elevations(w http.ResponseWriter, v *view) {
	body := elevationsView{Filter: v.request.URL.Query().Get("show")}
	query := listQuery(v)
	switch body.Filter {
	case "all":
	case "unreviewed":
		query.Set("unreviewed", "true")
	default:
		body.Filter = "open"
		query.Set("open", "true")
	}
	var list adminv1.ElevationList
	if err := v.api.get("/elevations", query, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Items = list.Items
	body.First, body.Next = pageLinks(v.request.URL, list.NextPageToken)
	v.render(w, http.StatusOK, "elevations", page{Title: "Access", Section: "/access", Body: body, Live: livePath + "access"})
}

// elevation shows an elevation.
func (p *Portal) elevation(w http.ResponseWriter, v *view) {
	var elevation adminv1.Elevation
	if err := v.api.get("/elevations/"+url.PathEscape(v.request.PathValue("elevation")), nil, &elevation); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body := elevationView{elevation, elevation.ObjectID == v.session.ObjectID}
	content := page{Title: "Elevation of " + elevation.Name, Section: "/access", Body: body, Crumbs: []crumb{{"Access", "/access"}}}
	if body.changes() {
		content.Live = livePath + "access/" + url.PathEscape(elevation.ID)
	}
	v.render(w, http.StatusOK, "elevation", content)
}

// elevationView is the content of the page of an elevation.
type elevationView struct {
	adminv1.Elevation
	// Own is true for an elevation of the engineer who reads the page.
	Own bool
}

// changes reports whether the page updates itself: the elevation can change, and nobody types into a form about it.
func (e elevationView) changes() bool {
	switch e.State {
	case adminv1.ElevationRequested:
		return e.Own
	case adminv1.ElevationApproved, adminv1.ElevationActive:
		return true
	}
	return false
}

// auditView is the content of the list of audit records.
type auditView struct {
	Items       []adminv1.AuditEntry
	First, Next string
}

// audit lists operations and elevations, the newest first.
func (p *Portal) audit(w http.ResponseWriter, v *view) {
	var list adminv1.AuditList
	if err := v.api.get("/audit", listQuery(v, "actor"), &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body := auditView{Items: list.Items}
	body.First, body.Next = pageLinks(v.request.URL, list.NextPageToken)
	v.render(w, http.StatusOK, "audit", page{Title: "Audit", Section: "/audit", Body: body})
}
