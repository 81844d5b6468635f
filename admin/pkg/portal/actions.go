package portal

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// field is a field of the form of an action.
type field struct {
	Name, Label, Help, Value string
	// Kind is the type of the input: text or number.
	Kind string
}

// action is an action on a cluster that the portal offers.
type action struct {
	// Path is the last part of the path of the form, and Name the name of the action in admin.
	Path, Name string
	Title      string
	// Effect states what the action does.
	Effect string
	Fields []field
	// route returns the path of the API below the cluster, and the body; an error names an invalid field.
	route func(form url.Values) (path string, body any, err error)
}

// withoutBody returns the route of an action without parameters.
func withoutBody(path string) func(url.Values) (string, any, error) {
	return func(url.Values) (string, any, error) { return path, nil, nil }
}

// fieldError is an error of a field that the portal itself found.
type fieldError struct{ field, message string }

// Error returns the message.
func (e *fieldError) Error() string { return e.message }

// clusterActions lists the actions on a cluster that the portal offers.
func clusterActions() []action {
	return []action{
		{Path: "retry", Name: adminv1.ActionClusterRetry, Title: "Retry", route: withoutBody("/retry"),
			Effect: "All pending steps of the cluster are retried at once: placement, publishing of works, and steps in Azure. Steps that run or are complete are not affected."},
		{Path: "pause", Name: adminv1.ActionClusterPause, Title: "Pause",
			Effect: "HyperShift stops the reconciliation of the control plane and the node pools until the pause ends. Running workloads are not affected.",
			Fields: []field{{Name: "duration", Label: "Duration", Help: "For example 30m or 2h, at most 168h.", Value: "30m", Kind: "text"}},
			route: func(form url.Values) (string, any, error) {
				return "/pause", adminv1.PauseRequest{Duration: strings.TrimSpace(form.Get("duration"))}, nil
			}},
		{Path: "resume", Name: adminv1.ActionClusterResume, Title: "Resume", route: withoutBody("/resume"),
			Effect: "HyperShift continues the reconciliation of a paused cluster and its node pools."},
		{Path: "retry-deletion", Name: adminv1.ActionDeletionRetry, Title: "Retry deletion", route: withoutBody("/deletion/retry"),
			Effect: "All running deletion steps of the cluster and its children are retried at once, in Cluster Service and in ARM."},
		{Path: "scale", Name: adminv1.ActionNodePoolScale, Title: "Scale node pool",
			Effect: "The node pool gets another size in the customer's place. ARM shows it as an update of the customer's resource. A smaller size drains and deletes nodes.",
			Fields: []field{{Name: "pool", Label: "Node pool", Help: "The name of the node pool.", Kind: "text"}, {Name: "replicas", Label: "Nodes", Help: "0 to 200.", Kind: "number"}},
			route: func(form url.Values) (string, any, error) {
				pool := strings.TrimSpace(form.Get("pool"))
				if pool == "" {
					return "", nil, &fieldError{"pool", "Required value."}
				}
				replicas, err := strconv.ParseInt(strings.TrimSpace(form.Get("replicas")), 10, 32)
				if err != nil {
					return "", nil, &fieldError{"replicas", "Must be a number from 0 to 200."}
				}
				count := int32(replicas)
				return "/node-pools/" + url.PathEscape(pool) + "/scale", adminv1.ScaleRequest{Replicas: &count}, nil
			}},
	}
}

// offer is an action that the page of a cluster offers.
type offer struct{ Title, URL string }

// offers returns the actions that suit the phase of a cluster. admin decides whether an action is possible.
func offers(cluster adminv1.Cluster) []offer {
	var list []offer
	deleting := cluster.DeleteTime != nil || cluster.Phase == "Deleting"
	for _, a := range clusterActions() {
		if (a.Path == "retry-deletion") == deleting {
			list = append(list, offer{a.Title, clusterURL(cluster.UID) + "/actions/" + a.Path})
		}
	}
	return list
}

// actionTitle returns the name of an action of admin as words: clusters.setSize is Set size of cluster.
func actionTitle(name string) string {
	for _, a := range clusterActions() {
		if a.Name == name {
			return a.Title
		}
	}
	object, verb, found := strings.Cut(name, ".")
	if !found {
		return words(name)
	}
	return words(verb) + ": " + strings.ToLower(words(object))
}

// lastSegment returns the last segment of a resource ID.
func lastSegment(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// actionPages lists the pages that request actions.
func (p *Portal) actionPages() []signedInPage {
	return []signedInPage{
		{"GET /clusters/{cluster}/actions/{action}", "action", p.actionForm},
		{"POST /clusters/{cluster}/actions/{action}", "action", p.act},
		{"GET /access/request", "request-elevation", p.elevationForm},
		{"POST /access/request", "request-elevation", p.requestElevation},
		{"POST /access/{elevation}/{transition}", "elevation-transition", p.changeElevation},
	}
}

// formView is the content of a form.
type formView struct {
	Cluster adminv1.Cluster
	Action  action
	Class   adminv1.AccessClass
	Role    adminv1.Role
	// Elevation permits the action; nil if the form requests one.
	Elevation *adminv1.Elevation
	Values    url.Values
	// Key is the idempotency key: sending the form again has no second effect.
	Key string
	// Problem is why the form was not accepted, and Field the field with the error.
	Problem, Field string
}

// elevationFields lists the fields of a request for an elevation.
var elevationFields = []string{"class", "cluster", "reason", "ticket", "length", "emergency"}

// prepare reads the cluster and the action of the path, and the elevation that permits it.
func (p *Portal) prepare(w http.ResponseWriter, v *view) (formView, bool) {
	cluster, found := p.find(w, v, "/actions/"+url.PathEscape(v.request.PathValue("action")))
	if !found {
		return formView{}, false
	}
	actions := clusterActions()
	index := slices.IndexFunc(actions, func(a action) bool { return a.Path == v.request.PathValue("action") })
	if index < 0 {
		p.fail(w, v.request, v, &apiError{status: http.StatusNotFound})
		return formView{}, false
	}
	form := formView{Cluster: cluster, Action: actions[index], Class: adminv1.ClassOf(actions[index].Name), Key: rand.Text(), Values: url.Values{"length": {"30m"}}}
	form.Role = form.Class.Role()
	for i := range form.Action.Fields {
		if value := v.request.URL.Query().Get(form.Action.Fields[i].Name); value != "" {
			form.Action.Fields[i].Value = value
		}
	}
	var err error
	if form.Elevation, err = p.permitting(v, form.Class, cluster.UID); err != nil {
		p.fail(w, v.request, v, err)
		return formView{}, false
	}
	return form, true
}

// permitting returns an active elevation of the engineer that permits actions of a class on a cluster; nil if there is none.
func (p *Portal) permitting(v *view, class adminv1.AccessClass, cluster string) (*adminv1.Elevation, error) {
	var list adminv1.ElevationList
	if err := v.api.get("/elevations", url.Values{"actor": {v.session.ObjectID}, "active": {"true"}}, &list); err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		if e.Class.Includes(class) && (e.Cluster == nil || e.Cluster.UID == cluster) {
			return &e, nil
		}
	}
	return nil, nil
}

// actionForm shows the effect of an action and asks for its parameters, and for an elevation unless one permits it.
func (p *Portal) actionForm(w http.ResponseWriter, v *view) {
	if form, ok := p.prepare(w, v); ok {
		p.showForm(w, v, http.StatusOK, form)
	}
}

func (p *Portal) showForm(w http.ResponseWriter, v *view, status int, form formView) {
	v.render(w, status, "action", clusterPage(form.Cluster, form.Action.Title, form))
}

// act requests an action, with an elevation of its own if none permits it, and shows the operation. The engineer gets the form again if admin does
// not accept it.
func (p *Portal) act(w http.ResponseWriter, v *view) {
	form, ok := p.prepare(w, v)
	if !ok {
		return
	}
	if err := v.request.ParseForm(); err != nil {
		p.fail(w, v.request, v, &apiError{status: http.StatusBadRequest, detail: adminv1.FailureDetail{Message: "The form could not be read."}})
		return
	}
	values := v.request.PostForm
	if key := values.Get("key"); key != "" {
		form.Key = key
	}
	form.Values = values
	for i := range form.Action.Fields {
		form.Action.Fields[i].Value = values.Get(form.Action.Fields[i].Name)
	}
	path, body, err := form.Action.route(values)
	if err != nil {
		p.refuse(w, v, form, err)
		return
	}
	if form.Elevation == nil {
		var requested adminv1.Elevation
		err := v.api.send(http.MethodPost, "/elevations", adminv1.ElevationRequest{
			Class: form.Class, Cluster: form.Cluster.UID, Reason: values.Get("reason"), Ticket: values.Get("ticket"), Duration: values.Get("length"),
		}, form.Key+"-elevation", &requested)
		if err != nil {
			p.refuse(w, v, form, err)
			return
		}
		if !requested.Active {
			// A second person must approve it first.
			redirect(w, "/access/"+url.PathEscape(requested.ID))
			return
		}
	}
	var operation adminv1.Operation
	if err := v.api.send(http.MethodPost, "/clusters/"+url.PathEscape(form.Cluster.UID)+path, body, form.Key, &operation); err != nil {
		p.refuse(w, v, form, err)
		return
	}
	redirect(w, "/operations/"+url.PathEscape(operation.ID))
}

// refuse shows a form again with the reason why it was not accepted.
func (p *Portal) refuse(w http.ResponseWriter, v *view, form formView, err error) {
	var status int
	form.Problem, form.Field, status = p.refusal(v, err)
	p.showForm(w, v, status, form)
}

// refusal returns the message, the field and the status of a form that was not accepted.
func (p *Portal) refusal(v *view, err error) (message, name string, status int) {
	var own *fieldError
	if errors.As(err, &own) {
		return own.message, own.field, http.StatusUnprocessableEntity
	}
	var failure *apiError
	if !errors.As(err, &failure) {
		return p.sentence(v, err), "", http.StatusInternalServerError
	}
	message, name = failure.detail.Message, failure.detail.Target
	for _, detail := range failure.detail.Details {
		message += " " + detail.Target + ": " + detail.Message + "."
		name = detail.Target
	}
	if name == "duration" {
		name = "length"
	}
	return message, name, failure.status
}

// elevationFormView is the content of the form for an elevation.
type elevationFormView struct {
	Values         url.Values
	Key            string
	Problem, Field string
	Classes        []adminv1.AccessClass
}

// elevationForm asks for an elevation.
func (p *Portal) elevationForm(w http.ResponseWriter, v *view) {
	values := url.Values{"length": {"30m"}, "class": {string(adminv1.Operate)}}
	if cluster := v.request.URL.Query().Get("cluster"); cluster != "" {
		values.Set("cluster", cluster)
	}
	p.showElevationForm(w, v, http.StatusOK, elevationFormView{Values: values, Key: rand.Text()})
}

func (p *Portal) showElevationForm(w http.ResponseWriter, v *view, status int, form elevationFormView) {
	form.Classes = adminv1.AccessClasses()
	v.render(w, status, "request-elevation", page{Title: "Request an elevation", Section: "/access", Body: form, Crumbs: []crumb{{"Access", "/access"}}})
}

// requestElevation requests an elevation and shows it.
func (p *Portal) requestElevation(w http.ResponseWriter, v *view) {
	if err := v.request.ParseForm(); err != nil {
		p.fail(w, v.request, v, &apiError{status: http.StatusBadRequest, detail: adminv1.FailureDetail{Message: "The form could not be read."}})
		return
	}
	values := v.request.PostForm
	form := elevationFormView{Values: url.Values{}, Key: values.Get("key")}
	for _, name := range elevationFields {
		form.Values.Set(name, values.Get(name))
	}
	var requested adminv1.Elevation
	err := v.api.send(http.MethodPost, "/elevations", adminv1.ElevationRequest{
		Class: adminv1.AccessClass(values.Get("class")), Cluster: strings.TrimSpace(values.Get("cluster")), Reason: values.Get("reason"), Ticket: values.Get("ticket"),
		Duration: values.Get("length"), Emergency: values.Get("emergency") != "",
	}, form.Key, &requested)
	if err != nil {
		var status int
		form.Problem, form.Field, status = p.refusal(v, err)
		p.showElevationForm(w, v, status, form)
		return
	}
	redirect(w, "/access/"+url.PathEscape(requested.ID))
}

// changeElevation ends, activates, approves or denies an elevation and shows it.
func (p *Portal) changeElevation(w http.ResponseWriter, v *view) {
	path := "/elevations/" + url.PathEscape(v.request.PathValue("elevation"))
	method, body := http.MethodPost, any(nil)
	switch transition := v.request.PathValue("transition"); transition {
	case "end":
		method = http.MethodDelete
	case "activate":
		path += "/activate"
	case "approve", "deny":
		path, body = path+"/"+transition, adminv1.DecisionRequest{Reason: v.request.PostFormValue("reason")}
	default:
		p.fail(w, v.request, v, &apiError{status: http.StatusNotFound})
		return
	}
	if err := v.api.send(method, path, body, "", nil); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	redirect(w, "/access/"+url.PathEscape(v.request.PathValue("elevation")))
}
