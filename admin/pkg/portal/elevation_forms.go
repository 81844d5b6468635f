package portal

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// elevationFields lists the fields of a request for an elevation.
var elevationFields = []string{"class", "cluster", "reason", "ticket", "length", "emergency"}

// elevationPages lists the pages that request and change elevations.
func (p *Portal) elevationPages() []signedInPage {
	return []signedInPage{
		{"GET /access/request", "request-elevation", p.elevationForm},
		{"POST /access/request", "request-elevation", p.requestElevation},
		{"POST /access/{elevation}/{transition}", "elevation-transition", p.changeElevation},
	}
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
	values, ok := p.posted(w, v)
	if !ok {
		return
	}
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
		form.Problem, form.Field, status = p.refusal(v, inForm(err))
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
	case "review":
		path, body = path+"/review", adminv1.ReviewRequest{Justified: v.request.PostFormValue("justified") == checkedOption, Comment: v.request.PostFormValue("comment")}
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
