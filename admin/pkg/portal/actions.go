package portal

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// field is a field of the form of an action.
type field = adminv1.Field

// action is an action that the portal offers.
type action struct {
	// Kind is the kind of the objects, and Path the last part of the path of the form.
	Kind, Path string
	// Name is the name of the action in admin.
	Name  string
	Title string
	// Effect states what the action does.
	Effect string
	Fields []field
	// class returns the class of the action if it depends on the form; nil if it is that of the name.
	class func(form url.Values) adminv1.AccessClass
	// body returns the body of the request; an error names an invalid field. If it is nil, the body has the fields that the action declares.
	body func(o object, form url.Values) (any, error)
	// preview reads what the action would do; nil if Effect states it completely.
	preview func(v *view, o object, form url.Values) (preview, error)
}

// request returns the method, the path below adminv1.Root and the body of the request of an action. A value in the path is that of the field with the name
// of the wildcard, or of the field name for a new object, or else identifies the object.
func (a *action) request(o object, form url.Values) (method, path string, body any, err error) {
	declared := adminv1.FindAction(a.Name)
	var values []string
	for _, wildcard := range adminv1.Wildcards(declared.Path) {
		value := o.ID
		switch {
		case slices.ContainsFunc(a.Fields, func(f field) bool { return f.Name == wildcard }):
			value, err = required(form, wildcard)
		case wildcard == "cluster":
			value = o.Cluster
		case a.Kind == kindRegion:
			value, err = required(form, "name")
		}
		if err != nil {
			return "", "", nil, err
		}
		values = append(values, value)
	}
	if a.body != nil {
		body, err = a.body(o, form)
	} else {
		body, err = declaredBody(declared, form)
	}
	if err != nil {
		return "", "", nil, err
	}
	method, path, body = declared.Request(body, values...)
	return method, path, body, nil
}

// declaredBody returns the body of the request of an action from the fields that it declares.
func declaredBody(declared *adminv1.Action, form url.Values) (any, error) {
	values, inPath := map[string]any{}, adminv1.Wildcards(declared.Path)
	for _, f := range declared.Fields {
		if slices.Contains(inPath, f.Name) {
			continue
		}
		value, err := fieldValue(f, form)
		if err != nil {
			return nil, err
		}
		values[f.Name] = value
	}
	return declared.Content(values)
}

// fieldError is an error of a field that the portal itself found.
type fieldError struct{ field, message string }

// Error returns the message.
func (e *fieldError) Error() string { return e.message }

// actions lists the actions that the portal offers. A test compares them with the routes of admin.
func actions() []action {
	return slices.Concat(declaredActions(), placementActions(), nodePoolActions(), upgradeActions(), shardActions(), egressLinkActions(), quotaActions())
}

// declaredActions lists the actions whose form package adminv1 declares.
func declaredActions() []action {
	var list []action
	for _, a := range adminv1.Actions() {
		if a.Form.Path == "" {
			continue
		}
		kind, _, found := strings.Cut(a.Path[1:], "/{")
		if !found {
			kind = kindRegion
		}
		list = append(list, action{Kind: kind, Path: a.Form.Path, Name: a.Name, Title: a.Form.Title, Effect: a.Form.Effect, Fields: a.Fields, preview: previews[a.Name]})
	}
	return list
}

// offer is an action that a page offers.
type offer struct {
	Title, URL string
	// Override is set if the action overrides a safeguard or cannot be undone.
	Override bool
}

// offerOf returns the offer of an action on an object, with values of its form.
func offerOf(kind, path, id string, values url.Values) offer {
	for _, a := range actions() {
		if a.Kind == kind && a.Path == path {
			target := formURL(kind, id, path)
			if len(values) > 0 {
				target += "?" + values.Encode()
			}
			return offer{a.Title, target, adminv1.ClassOf(a.Name) != adminv1.Operate}
		}
	}
	return offer{}
}

// offersOf returns the offers of actions on an object.
func offersOf(kind, id string, paths ...string) []offer {
	var list []offer
	for _, path := range paths {
		list = append(list, offerOf(kind, path, id, nil))
	}
	return list
}

// formURL returns the path of the form of an action.
func formURL(kind, id, path string) string {
	if kind == kindRegion {
		return "/actions/" + path
	}
	return "/" + kind + "/" + url.PathEscape(id) + "/actions/" + path
}

// actionTitle returns the title of an action of admin. Where the portal offers several forms of it, these are its words: shards.update is Update:
// shards.
func actionTitle(name string) string {
	var titles []string
	for _, a := range actions() {
		if a.Name == name {
			titles = append(titles, a.Title)
		}
	}
	if len(titles) == 1 {
		return titles[0]
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
	var list []signedInPage
	for _, kind := range objectKinds() {
		pattern := "/" + kind.Path + "/{object}/actions/{action}"
		if kind.Path == kindRegion {
			pattern = "/actions/{action}"
		}
		list = append(list,
			signedInPage{"GET " + pattern, "action", func(w http.ResponseWriter, v *view) { p.actionForm(w, v, kind) }},
			signedInPage{"POST " + pattern, "action", func(w http.ResponseWriter, v *view) { p.act(w, v, kind) }})
	}
	return list
}

// formView is the content of a form.
type formView struct {
	Kind   objectKind
	Object object
	Action action
	// URL is the path of the form.
	URL   string
	Class adminv1.AccessClass
	Role  adminv1.Role
	// Elevation permits the action; nil if the form requests one.
	Elevation *adminv1.Elevation
	// Preview is what the action would do; PreviewProblem is why it is not known.
	Preview        *preview
	PreviewProblem string
	Values         url.Values
	// Key is the idempotency key: sending the form again has no second effect.
	Key string
	// Problem is why the form was not accepted, and Field the field with the error.
	Problem, Field string

	// filled are the values of the fields.
	filled url.Values
}

// Override reports whether the action overrides a safeguard or cannot be undone.
func (f formView) Override() bool { return f.Class != adminv1.Operate }

// prepare reads the object and the action of the path, and the elevation that permits it. values are those of the fields.
func (p *Portal) prepare(w http.ResponseWriter, v *view, kind objectKind, values url.Values) (formView, bool) {
	known := actions()
	index := slices.IndexFunc(known, func(a action) bool { return a.Kind == kind.Path && a.Path == v.request.PathValue("action") })
	if index < 0 {
		p.fail(w, v.request, v, &apiError{status: http.StatusNotFound})
		return formView{}, false
	}
	o, err := kind.read(v, v.request.PathValue("object"))
	if err != nil {
		p.fail(w, v.request, v, err)
		return formView{}, false
	}
	form := formView{Kind: kind, Object: o, Action: known[index], Key: rand.Text(), Values: url.Values{"length": {"30m"}}, URL: formURL(kind.Path, o.ID, known[index].Path)}
	if o.ID != v.request.PathValue("object") && v.request.Method == http.MethodGet {
		if query := v.request.URL.RawQuery; query != "" {
			form.URL += "?" + query
		}
		redirect(w, form.URL)
		return formView{}, false
	}
	entered := v.request.Method == http.MethodPost
	form.filled = url.Values{}
	form.Action.Fields = slices.Clone(form.Action.Fields)
	for i := range form.Action.Fields {
		f := &form.Action.Fields[i]
		switch {
		case entered || values.Has(f.Name):
			f.Value = values.Get(f.Name)
		case o.Values.Has(f.Name):
			f.Value = o.Values.Get(f.Name)
		}
		if f.Kind == adminv1.FieldFixed && f.Value == "" {
			f.Kind = ""
		}
		form.filled.Set(f.Name, f.Value)
	}
	form.Class = adminv1.ClassOf(form.Action.Name)
	if form.Action.class != nil {
		form.Class = form.Action.class(form.filled)
	}
	form.Role = form.Class.Role()
	if form.Elevation, err = p.permitting(v, form.Class, o.Cluster); err != nil {
		p.fail(w, v.request, v, err)
		return formView{}, false
	}
	return form, true
}

// permitting returns an active elevation of the engineer that permits actions of a class on a cluster, or on the region if cluster is empty; nil
// if there is none.
func (p *Portal) permitting(v *view, class adminv1.AccessClass, cluster string) (*adminv1.Elevation, error) {
	var list adminv1.ElevationList
	if err := v.api.get("/elevations", url.Values{"actor": {v.session.ObjectID}, "active": {"true"}}, &list); err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		if e.Class.Includes(class) && (e.Cluster == nil || cluster != "" && e.Cluster.UID == cluster) {
			return &e, nil
		}
	}
	return nil, nil
}

// actionForm shows the effect of an action and asks for its parameters, and for an elevation unless one permits it.
func (p *Portal) actionForm(w http.ResponseWriter, v *view, kind objectKind) {
	if form, ok := p.prepare(w, v, kind, v.request.URL.Query()); ok {
		p.showForm(w, v, http.StatusOK, form)
	}
}

// showForm shows a form with what the action would do at this time. The form can be sent also if that cannot be read.
func (p *Portal) showForm(w http.ResponseWriter, v *view, status int, form formView) {
	if form.Action.preview != nil {
		if shown, err := form.Action.preview(v, form.Object, form.filled); err != nil {
			form.PreviewProblem = p.sentence(v, err)
		} else {
			form.Preview = &shown
		}
	}
	content := page{Title: form.Action.Title, Section: form.Kind.Section, Body: form}
	if form.Kind.List.URL != "" {
		content.Crumbs = append(content.Crumbs, form.Kind.List)
	}
	if form.Object.URL != "" && form.Object.URL != form.Kind.List.URL {
		content.Crumbs = append(content.Crumbs, crumb{form.Object.Name, form.Object.URL})
	}
	v.render(w, status, "action", content)
}

// posted returns the values of the form of a request.
func (p *Portal) posted(w http.ResponseWriter, v *view) (url.Values, bool) {
	if err := v.request.ParseForm(); err != nil {
		p.fail(w, v.request, v, &apiError{status: http.StatusBadRequest, detail: adminv1.FailureDetail{Message: "The form could not be read."}})
		return nil, false
	}
	return v.request.PostForm, true
}

// act requests an action, with an elevation of its own if none permits it, and shows the operation. The engineer gets the form again if admin does
// not accept it.
func (p *Portal) act(w http.ResponseWriter, v *view, kind objectKind) {
	values, ok := p.posted(w, v)
	if !ok {
		return
	}
	form, ok := p.prepare(w, v, kind, values)
	if !ok {
		return
	}
	if key := values.Get("key"); key != "" {
		form.Key = key
	}
	form.Values = values
	method, path, body, err := form.Action.request(form.Object, values)
	if err != nil {
		p.refuse(w, v, form, err)
		return
	}
	if form.Elevation == nil {
		var requested adminv1.Elevation
		err := v.api.send(http.MethodPost, "/elevations", adminv1.ElevationRequest{
			Class: form.Class, Cluster: form.Object.Cluster, Reason: values.Get("reason"), Ticket: values.Get("ticket"), Duration: values.Get("length"),
		}, form.Key+"-elevation", &requested)
		if err != nil {
			p.refuse(w, v, form, inForm(err))
			return
		}
		if !requested.Active {
			// A second person must approve it first.
			redirect(w, "/access/"+url.PathEscape(requested.ID))
			return
		}
	}
	var operation adminv1.Operation
	if err := v.api.send(method, path, body, form.Key, &operation); err != nil {
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

// inForm returns the error of a request for an elevation with the name that its duration has in forms.
func inForm(err error) error {
	var failure *apiError
	if !errors.As(err, &failure) {
		return err
	}
	renamed := *failure
	renamed.detail.Details = slices.Clone(failure.detail.Details)
	for i := range renamed.detail.Details {
		renameLength(&renamed.detail.Details[i])
	}
	renameLength(&renamed.detail)
	return &renamed
}

func renameLength(detail *adminv1.FailureDetail) {
	if detail.Target == "duration" {
		detail.Target = "length"
	}
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
	return message, name, failure.status
}
