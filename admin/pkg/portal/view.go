package portal

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

//go:embed templates
var templates embed.FS

// view is one request for a page. session is nil for pages that need none.
type view struct {
	portal  *Portal
	request *http.Request
	session *session
	api     apiCall
	// now is the time of the request, in UTC. Ages on the page are relative to it.
	now time.Time
	// revision is that of the changes before the page was read.
	revision string
}

// page is what a handler decides about a page.
type page struct {
	Title string
	// Section is the path of the entry in the navigation that contains the page.
	Section string
	Crumbs  []crumb
	// Live is the path of the stream of events with which the page updates itself, below livePath; empty if it does not.
	Live string
	// Body is the content of the template.
	Body any
}

// crumb is a page above the current one.
type crumb struct{ Title, URL string }

// layout is the data of the templates.
type layout struct {
	page
	Now    time.Time
	Region string
	// Person is the name of the engineer; empty without a session.
	Person string
	Theme  string
	// Path is the path of the page with its query, to which forms return.
	Path string
	Nav  []navEntry
	// Revision is one of the changes that the page contains.
	Revision string
	// Query is the text of the search field.
	Query string
}

// navEntry is an entry of the navigation.
type navEntry struct {
	Title, URL string
	Current    bool
}

// navigation lists the sections of the portal.
var navigation = []navEntry{
	{Title: "Region", URL: "/"}, {Title: "Clusters", URL: "/clusters"}, {Title: "Operations", URL: "/operations"}, {Title: "Upgrades", URL: "/upgrades"}, {Title: "Deletions", URL: "/deletions"},
	{Title: "Shards", URL: "/shards"}, {Title: "Alerts", URL: "/alerts"}, {Title: "Drift", URL: "/drift"}, {Title: "Egress links", URL: "/egress-links"}, {Title: "Access", URL: "/access"}, {Title: "Audit", URL: "/audit"},
}

// pages are the parsed templates by name.
type pages struct{ byName map[string]*template.Template }

// loadPages parses the templates. Each page has the layout, the partials, and a file that defines its content.
func loadPages(a *assets) (*pages, error) {
	functions := template.FuncMap{
		"asset": func(name string) (string, error) {
			url, known := a.urls[name]
			if !known {
				return "", fmt.Errorf("no asset %s", name)
			}
			return url, nil
		},
		"icon": icon, "age": ageElement, "at": timeElement, "status": statusOf, "shortID": shortID, "list": func(items ...any) []any { return items },
		"join": strings.Join, "percent": percent, "words": words, "lower": strings.ToLower, "title": actionTitle, "requester": requester, "gate": gateOffer, "scope": policyScope, "windows": policyWindows, "policyState": policyState, "follow": followName, "applied": appliedState, "objects": manifestObjects, "driftOffer": driftOffer, "offer": offerOf, "query": query, "labels": labelText, "alertLabels": alertLabels, "silenceURL": silenceURL, "deletionOffers": deletionOffers, "armOffers": armOffers, "stuck": stuckStep, "step": currentStep, "name": lastSegment,
	}
	names, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	p := &pages{byName: map[string]*template.Template{}}
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name == "layout" {
			continue
		}
		parsed, err := template.New("layout.html").Funcs(functions).ParseFS(templates, "templates/layout.html", file)
		if err != nil {
			return nil, err
		}
		p.byName[name] = parsed
	}
	return p, nil
}

// ScriptNames returns the names of the scripts of a page.
func (l layout) ScriptNames() []string {
	var names []string
	for _, file := range scripts {
		names = append(names, file[strings.LastIndexByte(file, '/')+1:])
	}
	return names
}

// render writes a page. It is complete before the first byte is sent, so that an error of a template shows no half page.
func (v *view) render(w http.ResponseWriter, status int, name string, content page) {
	if v.portal.requireStepUp(w, v, content) {
		return
	}
	data := layout{page: content, Now: v.now, Region: v.portal.Region, Theme: themeOf(v.request), Path: v.request.URL.RequestURI(), Revision: v.revision, Query: v.request.URL.Query().Get("q")}
	if v.session != nil {
		data.Person = v.session.Name
		for _, entry := range navigation {
			entry.Current = entry.URL == content.Section
			data.Nav = append(data.Nav, entry)
		}
	}
	parsed, known := v.portal.pages.byName[name]
	var body bytes.Buffer
	var err error
	if known {
		err = parsed.Execute(&body, data)
	} else {
		err = fmt.Errorf("no page %s", name)
	}
	if err != nil {
		v.portal.Log.ErrorContext(v.request.Context(), "rendering a page failed", logkey.Path, v.request.URL.Path, logkey.Error, err)
		http.Error(w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Vary", "Accept-Encoding, Cookie, HX-Request")
	if !acceptsGzip(v.request) {
		w.WriteHeader(status)
		_, _ = w.Write(body.Bytes())
		return
	}
	header.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	writer := gzip.NewWriter(w)
	_, _ = writer.Write(body.Bytes())
	_ = writer.Close()
}
