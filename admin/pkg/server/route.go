package server

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Route describes and handles one method on one path of the API.
type Route struct {
	Method string
	// Path is a pattern of net/http with {name} wildcards.
	Path string
	// Name identifies the route in logs, metrics, audit records and the OpenAPI document, for example clusters.dump.
	Name    string
	Summary string
	// Role is required of the caller, as in the authorization table. A route that Mutates also requires an active elevation for the
	// class of its action.
	Role    adminv1.Role
	Mutates bool
	// WithoutClaims is the reason why the caller's token need not have the claims that Role requires; empty for a route that checks
	// them. A handler that needs a further role, which depends on the object, checks the claims of that role in any case.
	WithoutClaims string
	// Repeatable is set for a route that does not Mutate and nevertheless accepts an idempotency key.
	Repeatable bool
	// Sensitive is set for reads that are audited: they return what every layer holds of a customer's cluster, or who has access to it.
	Sensitive bool
	// Query lists the query parameters; requests with others are rejected.
	Query []adminv1.Parameter
	// Request and Response are values of the types of the bodies; nil if there is none.
	Request, Response any
	// ContentType is the media type of a successful response; empty for JSON.
	ContentType string
	// Status is the HTTP status of a successful response.
	Status int
	// Timeout limits the duration of a request; 0 means requestTimeout.
	Timeout time.Duration

	handle handler
}

// pattern returns the pattern of the route in http.ServeMux and in the authorization table.
func (r *Route) pattern() string { return r.Method + " " + r.Path }

// handler returns the response body of an authorized request, or an error.
type handler func(ctx context.Context, rq *request) (any, error)

// page returns the values of the parameters of lists.
func (rq *request) page() (size int, token string, err error) {
	query := rq.http.URL.Query()
	size = 100
	if text := query.Get("pageSize"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 || size > 500 {
			return 0, "", apierror.New(apierror.InvalidParameter, "Invalid value: '%s': must be 1 to 500.", text).WithTarget("pageSize")
		}
	}
	return size, query.Get("pageToken"), nil
}

// rejectUnknownParameters returns an error for query parameters that the route does not have, that are given twice, or that package url leaves out because
// they are malformed: a filter without effect would return more than was asked for.
func (rq *request) rejectUnknownParameters() error {
	query := url.Values{}
	for pair := range strings.SplitSeq(rq.http.URL.RawQuery, "&") {
		parsed, err := url.ParseQuery(pair)
		if err != nil {
			name, _, _ := strings.Cut(pair, "=")
			return apierror.New(apierror.InvalidParameter, "Invalid value: must be escaped as in the query of a URL.").WithTarget(truncate(name))
		}
		for name := range parsed {
			if query.Has(name) {
				return apierror.New(apierror.InvalidParameter, "Duplicate value: must be given once.").WithTarget(truncate(name))
			}
			query[name] = parsed[name]
		}
	}
	for name := range query {
		found := false
		for _, p := range rq.route.Query {
			found = found || p.Name == name
		}
		if !found {
			return apierror.New(apierror.InvalidParameter, "Unknown query parameter.").WithTarget(name)
		}
	}
	return nil
}

// flag returns the value of a boolean parameter; the default is false.
func (rq *request) flag(name string) (bool, error) {
	switch text := rq.http.URL.Query().Get(name); text {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, apierror.New(apierror.InvalidParameter, "Invalid value: '%s': must be true or false.", text).WithTarget(name)
	}
}
