package portal

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// alertPages lists the pages of alerts and silences.
func (p *Portal) alertPages() []signedInPage {
	return []signedInPage{
		{"GET /alerts", "alerts", p.alerts},
		{"GET /silences/new", "silence", p.silenceForm},
		{"POST /silences", "silence", p.createSilence},
		{"GET /silences/{silence}/end", "silence-end", p.endSilenceForm},
		{"POST /silences/{silence}/end", "silence-end", p.endSilence},
	}
}

// alertsView is the content of the page of alerts.
type alertsView struct {
	adminv1.AlertList
	// NoAlerts is why the firing alerts are unknown, and NoSilences why the silences are; empty if they are known.
	NoAlerts, NoSilences string
}

// alerts lists the firing alerts and the silences. A list that could not be read is not shown as empty: the page states why it is unknown.
func (p *Portal) alerts(w http.ResponseWriter, v *view) {
	var body alertsView
	if err := v.api.get("/alerts", nil, &body.AlertList); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	const unknown = "The response has no list and no reason."
	if body.Alerts == nil {
		body.NoAlerts = cmp.Or(body.Unavailable[adminv1.UnavailableAlerts], unknown)
	}
	if body.Silences == nil {
		body.NoSilences = cmp.Or(body.Unavailable[adminv1.UnavailableSilences], unknown)
	}
	v.render(w, http.StatusOK, "alerts", page{Title: "Alerts", Section: "/alerts", Body: body})
}

// alertLabels returns the labels of an alert other than its severity, in order.
func alertLabels(alert adminv1.Alert) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(alert.Labels)) {
		if name != "severity" {
			list = append(list, name+"="+alert.Labels[name])
		}
	}
	return list
}

// silenceURL returns the URL of the form that silences an alert. The form has the labels of its object, so that the alerts about others still notify.
func silenceURL(alert adminv1.Alert) string {
	var list []string
	for _, name := range []string{"shard", "cluster_uid", "component", "concern"} {
		if value := alert.Labels[name]; value != "" {
			list = append(list, name+"="+value)
		}
	}
	return "/silences/new?" + query("alert", alert.Name, "labels", strings.Join(list, ", ")).Encode()
}

// silenceView is the content of the forms of silences.
type silenceView struct {
	Fields []field
	// Silence is the one that the form ends; nil for a new one.
	Silence *adminv1.Silence
	// URL is the path of the form, and Key its idempotency key.
	URL, Key string
	// Problem is why the form was not accepted, and Field the field with the error.
	Problem, Field string
}

// justification returns the fields that state why an engineer acts.
func justification() []field {
	return []field{
		{Name: "reason", Label: "Reason", Help: "Why you act, 8 to 1024 characters. It is recorded."},
		{Name: "ticket", Label: "Ticket", Help: "The incident or change."},
	}
}

// silenceFields returns the fields of a new silence.
func silenceFields() []field {
	return append([]field{
		{Name: "alert", Label: "Alert", Help: "The name of the alert."},
		{Name: "labels", Label: "Labels", Help: "Only alerts with these labels, for example shard=mgmt-1, separated by commas. Empty silences all alerts with the name.", Optional: true},
		{Name: "duration", Label: "Duration", Help: "5m to 24h, for example 2h.", Value: "2h"},
	}, justification()...)
}

// filledFields returns fields with the values of a form.
func filledFields(fields []field, form url.Values) []field {
	for i := range fields {
		if form.Has(fields[i].Name) {
			fields[i].Value = form.Get(fields[i].Name)
		}
	}
	return fields
}

// silenceForm asks for a silence.
func (p *Portal) silenceForm(w http.ResponseWriter, v *view) {
	p.showSilence(w, v, http.StatusOK, silenceView{Fields: filledFields(silenceFields(), v.request.URL.Query()), URL: "/silences", Key: rand.Text()})
}

func (p *Portal) showSilence(w http.ResponseWriter, v *view, status int, form silenceView) {
	title := "Silence an alert"
	if form.Silence != nil {
		title = "End a silence"
	}
	v.render(w, status, "silence", page{Title: title, Section: "/alerts", Body: form, Crumbs: []crumb{{"Alerts", "/alerts"}}})
}

// createSilence silences alerts and shows all alerts. The engineer gets the form again if admin does not accept it.
func (p *Portal) createSilence(w http.ResponseWriter, v *view) {
	values, ok := p.posted(w, v)
	if !ok {
		return
	}
	form := silenceView{Fields: filledFields(silenceFields(), values), URL: "/silences", Key: values.Get("key")}
	chosen, err := labels(values, "labels")
	if err == nil {
		err = v.api.send(http.MethodPost, "/silences", adminv1.SilenceRequest{Alert: text(values, "alert"), Labels: chosen, Duration: text(values, "duration"), Reason: values.Get("reason"), Ticket: values.Get("ticket")}, form.Key, nil)
	}
	p.afterSilence(w, v, form, err)
}

// afterSilence shows the alerts, or the form again with the reason why it was not accepted.
func (p *Portal) afterSilence(w http.ResponseWriter, v *view, form silenceView, err error) {
	if err == nil {
		redirect(w, "/alerts")
		return
	}
	var status int
	form.Problem, form.Field, status = p.refusal(v, err)
	p.showSilence(w, v, status, form)
}

// silence returns the silence of the path.
func (p *Portal) silence(w http.ResponseWriter, v *view) (adminv1.Silence, bool) {
	var list adminv1.AlertList
	if err := v.api.get("/alerts", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return adminv1.Silence{}, false
	}
	for _, s := range list.Silences {
		if s.ID == v.request.PathValue("silence") {
			return s, true
		}
	}
	message := "The silence does not exist, or has ended."
	if list.Silences == nil {
		message = cmp.Or(list.Unavailable[adminv1.UnavailableSilences], message)
	}
	p.fail(w, v.request, v, missing(message))
	return adminv1.Silence{}, false
}

// endSilenceForm asks why a silence is ended.
func (p *Portal) endSilenceForm(w http.ResponseWriter, v *view) {
	if silence, found := p.silence(w, v); found {
		p.showSilence(w, v, http.StatusOK, endForm(silence, nil))
	}
}

// endForm returns the form that ends a silence.
func endForm(silence adminv1.Silence, values url.Values) silenceView {
	return silenceView{Fields: filledFields(justification(), values), Silence: &silence, URL: "/silences/" + url.PathEscape(silence.ID) + "/end"}
}

// endSilence ends a silence and shows the alerts.
func (p *Portal) endSilence(w http.ResponseWriter, v *view) {
	silence, found := p.silence(w, v)
	if !found {
		return
	}
	values, ok := p.posted(w, v)
	if !ok {
		return
	}
	err := v.api.send(http.MethodPost, "/silences/"+url.PathEscape(silence.ID)+"/end", adminv1.EndSilenceRequest{Reason: values.Get("reason"), Ticket: values.Get("ticket")}, "", nil)
	p.afterSilence(w, v, endForm(silence, values), err)
}
