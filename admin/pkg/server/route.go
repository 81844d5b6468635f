package server

import (
	"context"
	"net/http"
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
	// Role that a caller must have.
	Role adminv1.Role
	// Query are the parameters that it knows; another one is refused.
	Query []Parameter
	// Request and Response are examples of the bodies' types; nil when there is none.
	Request, Response any
	// Status of the answer.
	Status int

	handle func(ctx context.Context, rq *request) (any, error)
}

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

// Routes are all routes of the API, for the OpenAPI document.
func Routes() []Route { return (&Server{}).routes() }

func (s *Server) routes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: adminv1.Root + "/me", Name: "me", Summary: "Who the caller is, and which roles the caller's groups give.",
			Role: adminv1.Reader, Response: adminv1.Identity{}, Status: http.StatusOK, handle: s.me,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/clusters", Name: "clusters.list",
			Summary: "The clusters that `q` means: a resource id, name, uid, cluster id, namespace, API host or subscription; without it a page of the fleet.",
			Role:    adminv1.Reader, Response: adminv1.ClusterList{}, Status: http.StatusOK, handle: s.listClusters,
			Query: append([]Parameter{
				{Name: "q", Type: "string", Description: "What the clusters are found by; at most 200 are."},
				{Name: "subscription", Type: "string", Description: "Only clusters of this subscription, as ARM knows them."},
			}, paging...),
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/clusters/{cluster}", Name: "clusters.get",
			Summary: "One cluster. In the path, here and below, it is named by anything that `q` takes, as long as that means one cluster.",
			Role:    adminv1.Reader, Response: adminv1.Cluster{}, Status: http.StatusOK, handle: s.getCluster,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/clusters/{cluster}/dump", Name: "clusters.dump",
			Summary: "What every layer knows of a cluster, with secrets removed.",
			Role:    adminv1.Reader, Response: adminv1.Dump{}, Status: http.StatusOK, handle: s.dumpCluster,
		},
	}
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

// known refuses parameters that the route does not have.
func (rq *request) known() error {
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
