package portal

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// signedInPage is a page that needs a session.
type signedInPage struct {
	// pattern is a pattern of http.ServeMux, and name the label of metrics.
	pattern, name string
	handle        func(http.ResponseWriter, *view)
}

// signedInPages lists the pages that need a session.
func (p *Portal) signedInPages() []signedInPage {
	return []signedInPage{
		{"GET /{$}", "region", p.region},
		{"GET /me", "me", p.me},
		{"GET /clusters", "clusters", p.clusters},
		{"GET /clusters/{cluster}", "cluster", p.cluster},
		{"GET /clusters/{cluster}/timeline", "timeline", p.timeline},
		{"GET /clusters/{cluster}/operations", "cluster-operations", p.clusterOperations},
		{"GET /clusters/{cluster}/credentials", "credentials", p.credentials},
		{"GET /clusters/{cluster}/deletion", "deletion", p.deletion},
		{"GET /clusters/{cluster}/accesses", "accesses", p.accesses},
		{"GET /clusters/{cluster}/access-records", "access-records", p.accessRecords},
		{"GET /operations", "operations", p.operations},
		{"GET /operations/{operation}", "operation", p.operation},
		{"GET /deletions", "deletions", p.deletions},
		{"GET /shards", "shards", p.shards},
		{"GET /shards/{shard}", "shard", p.shard},
		{"GET /access", "access", p.elevations},
		{"GET /access/{elevation}", "elevation", p.elevation},
		{"GET /audit", "audit", p.audit},
	}
}

// problem is a part of a page that could not be read.
type problem struct{ Part, Message string }

// reader reads the parts of a page at the same time. A part that cannot be read is a problem of the page and does not fail it.
type reader struct {
	view *view
	all  sync.WaitGroup

	mu       sync.Mutex
	problems []problem
	errors   []error
}

// get reads a response of the API.
func (r *reader) get(part, path string, query url.Values, into any) {
	r.all.Go(func() {
		err := r.view.api.get(path, query, into)
		if err == nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.problems = append(r.problems, problem{part, r.view.portal.sentence(r.view, err)})
		r.errors = append(r.errors, err)
	})
}

// wait returns the parts that could not be read, in order, and an error if that is true for all parts for which the engineer has no rights.
func (r *reader) wait() ([]problem, error) {
	r.all.Wait()
	slices.SortFunc(r.problems, func(a, b problem) int { return strings.Compare(a.Part, b.Part) })
	for _, err := range r.errors {
		if isStatus(err, http.StatusForbidden) || isStatus(err, http.StatusUnauthorized) {
			return nil, err
		}
	}
	return r.problems, nil
}

// regionView is the content of the page of the region.
type regionView struct {
	Explanation adminv1.RegionExplanation
	// Away are the components that are not ready.
	Away       []adminv1.Component
	Shards     []adminv1.FleetShard
	Operations []adminv1.Operation
	Elevations []adminv1.Elevation
	Problems   []problem
}

// region shows the state of the region.
func (p *Portal) region(w http.ResponseWriter, v *view) {
	var shards adminv1.ShardList
	var accepted, running adminv1.OperationList
	var elevations adminv1.ElevationList
	var body regionView
	read := reader{view: v}
	read.get("Explanation", "/explanation", nil, &body.Explanation)
	read.get("Provision shards", "/shards", nil, &shards)
	read.get("Accepted operations", "/operations", url.Values{"state": {string(adminv1.Accepted)}, "pageSize": {"20"}}, &accepted)
	read.get("Running operations", "/operations", url.Values{"state": {string(adminv1.Running)}, "pageSize": {"20"}}, &running)
	read.get("Elevations", "/elevations", url.Values{"open": {"true"}, "pageSize": {"20"}}, &elevations)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	for _, c := range body.Explanation.Components {
		if c.Away() {
			body.Away = append(body.Away, c)
		}
	}
	body.Shards, body.Operations, body.Elevations = shards.Items, append(accepted.Items, running.Items...), elevations.Items
	slices.SortFunc(body.Operations, func(a, b adminv1.Operation) int { return a.StartTime.Compare(b.StartTime) })
	v.render(w, http.StatusOK, "region", page{Title: "Region", Section: "/", Body: body, Live: livePath + "region"})
}

// meView is the content of the page of the engineer.
type meView struct {
	Identity   adminv1.Identity
	Session    database.SessionDocument
	Elevations []adminv1.Elevation
}

// me shows the engineer, the session, and the open elevations.
func (p *Portal) me(w http.ResponseWriter, v *view) {
	body := meView{Session: v.session.SessionDocument}
	var elevations adminv1.ElevationList
	read := reader{view: v}
	read.get("Identity", "/me", nil, &body.Identity)
	read.get("Elevations", "/elevations", url.Values{"actor": {v.session.ObjectID}, "open": {"true"}}, &elevations)
	problems, err := read.wait()
	if err == nil && len(problems) > 0 {
		err = read.errors[0]
	}
	if err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Elevations = elevations.Items
	v.render(w, http.StatusOK, "me", page{Title: "You", Section: "/me", Body: body})
}
