package server

import (
	"context"
	"strconv"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Route is one of the API.
type Route struct {
	Method string
	// Path is of net/http's patterns, with {names} for what varies.
	Path string
	// Name is the route's in logs, metrics, audit and the OpenAPI document, as in clusters.dump.
	Name    string
	Summary string
	// Role that a caller must have; for a route that Mutates also the one that the caller must have elevated to.
	Role    adminv1.Role
	Mutates bool
	// Query are the parameters that it knows; another one is refused.
	Query []Parameter
	// Request and Response are examples of the bodies' types; nil when there is none.
	Request, Response any
	// Status of the answer.
	Status int

	handle handler
}

// handler answers a request that was let in, with a body or an error.
type handler func(ctx context.Context, rq *request) (any, error)

// Parameter is one of a query.
type Parameter struct {
	Name, Description string
	// Type is string, integer or boolean.
	Type string
}

// The parameters of lists.
var paging = []Parameter{
	{Name: "pageSize", Type: "integer", Description: "How many items a page has at most, 1 to 500; 100 by default."},
	{Name: "pageToken", Type: "string", Description: "The nextPageToken of the page before."},
}

// page reads the parameters of a list.
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

// rejectUnknownParameters refuses parameters that the route does not have.
func (rq *request) rejectUnknownParameters() error {
	for name := range rq.http.URL.Query() {
		found := false
		for _, p := range rq.route.Query {
			found = found || p.Name == name
		}
		if !found {
			return apierror.New(apierror.InvalidParameter, "There is no such parameter.").WithTarget(name)
		}
	}
	return nil
}

// flag reads a parameter that is true or false; without it, it is false.
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
