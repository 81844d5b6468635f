package portal

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// livePath begins the paths of the streams of events.
const livePath = "/live/"

// liveRetry is the time after which a browser may try again to follow a page that could not be read.
const liveRetry = 5 * time.Second

// livePage is a stream of events about a page.
type livePage struct {
	// pattern is a pattern of http.ServeMux, and name the label of metrics.
	pattern, name string
	// read returns what the page shows. It reads the object of the page from the API with the rights of the user, and returns the error if the
	// API refuses that.
	read func(*view) (live.Page, error)
}

// livePages lists the streams of events.
func (p *Portal) livePages() []livePage {
	return []livePage{
		{"GET /live/region", "live-region", p.liveRegion},
		{"GET /live/operations", "live-operations", p.liveOperations},
		{"GET /live/access", "live-access", p.liveElevations},
		{"GET /live/access/{elevation}", "live-elevation", p.liveElevation},
		{"GET /live/access-sessions", "live-access-sessions", p.liveAccessSessions},
		{"GET /live/access-sessions/{session}", "live-access-session", p.liveAccessSession},
		{"GET /live/operations/{operation}", "live-operation", p.liveOperation},
		{"GET /live/clusters/{cluster}", "live-cluster", p.liveCluster},
	}
}

// liveRegion returns what the page of the region shows. Every role may read it, so the user must have one.
func (p *Portal) liveRegion(v *view) (live.Page, error) {
	var identity adminv1.Identity
	err := v.api.get("/me", nil, &identity)
	return p.Changes.Region(), err
}

// liveOperations returns what the list of operations shows, and liveElevations what that of elevations shows. Their filters do not matter: an event costs a
// read of the page.
func (p *Portal) liveOperations(v *view) (live.Page, error) {
	var list adminv1.OperationList
	err := v.api.get("/operations", url.Values{"pageSize": {"1"}}, &list)
	return p.Changes.Operations(), err
}

func (p *Portal) liveElevations(v *view) (live.Page, error) {
	var list adminv1.ElevationList
	err := v.api.get("/elevations", url.Values{"pageSize": {"1"}}, &list)
	return p.Changes.Elevations(), err
}

// liveElevation returns what the page of an elevation shows.
func (p *Portal) liveElevation(v *view) (live.Page, error) {
	var elevation adminv1.Elevation
	err := v.api.get("/elevations/"+url.PathEscape(v.request.PathValue("elevation")), nil, &elevation)
	return p.Changes.Elevation(elevation.ID), err
}

// liveAccessSessions returns what the list of access sessions shows.
func (p *Portal) liveAccessSessions(v *view) (live.Page, error) {
	var list adminv1.AccessSessionList
	err := v.api.get("/access-sessions", url.Values{"open": {"true"}}, &list)
	return p.Changes.AccessSessions(), err
}

// liveAccessSession returns what the page of an access session shows.
func (p *Portal) liveAccessSession(v *view) (live.Page, error) {
	var session adminv1.AccessSession
	err := v.api.get(sessionPath(v), nil, &session)
	return p.Changes.AccessSession(session.ID), err
}

// liveOperation returns what the page of an admin operation shows.
func (p *Portal) liveOperation(v *view) (live.Page, error) {
	var operation adminv1.Operation
	err := v.api.get("/operations/"+url.PathEscape(v.request.PathValue("operation")), nil, &operation)
	return p.Changes.Operation(operation.ID), err
}

// liveCluster returns what the page of a cluster shows.
func (p *Portal) liveCluster(v *view) (live.Page, error) {
	var cluster adminv1.Cluster
	err := v.api.get("/clusters/"+url.PathEscape(v.request.PathValue("cluster")), nil, &cluster)
	return p.Changes.Cluster(cluster.UID, cluster.ResourceID), err
}

// follow serves the stream of events of a page. The session and the right to read the page are checked when the stream begins. Its events contain no
// data: the browser reads the page with each change.
func (p *Portal) follow(read func(*view) (live.Page, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		request := r.WithContext(ctx)
		found, err := p.Sessions.find(ctx, request)
		if err == nil {
			err = p.renew(request, found)
		}
		var page live.Page
		if err == nil {
			page, err = read(&view{portal: p, request: request, session: found, api: p.api(request, found.tokens.Access), now: p.Now().UTC()})
		}
		switch {
		case errors.Is(err, errNoSession):
			p.Changes.Hub.RefuseSession(w)
			return
		case err != nil:
			p.Changes.Hub.Refuse(w, p.liveRefusal(r, err))
			return
		}
		after := r.Header.Get("Last-Event-ID")
		if after == "" {
			after = r.URL.Query().Get("after")
		}
		p.Changes.Hub.Serve(w, r, live.Stream{Page: page, Session: sessionID(found.secret), After: after,
			Age: min(found.deadline().Sub(p.Now()), found.tokens.Expires.Sub(p.Now())),
			Check: func() bool {
				_, err := p.Sessions.find(ctx, request)
				return err == nil
			}})
	}
}

// liveRefusal returns the end of a stream that could not begin.
func (p *Portal) liveRefusal(r *http.Request, err error) live.Ending {
	var failure *apiError
	if errors.As(err, &failure) && failure.status < http.StatusInternalServerError && failure.status != http.StatusTooManyRequests {
		return live.Ending{Message: "This page is not updated: " + failure.detail.Message}
	}
	p.Log.WarnContext(r.Context(), "a stream of events could not begin", logkey.Path, r.URL.Path, logkey.Error, err)
	return live.Ending{Message: "This page is not updated at the moment. Trying again.", RetryAfter: liveRetry.Milliseconds()}
}

// automatic reports whether a script repeats the request without the engineer: such a request does not extend the session.
func automatic(r *http.Request) bool {
	return r.Header.Get("HX-Request") != "" || strings.HasPrefix(r.URL.Path, livePath)
}
