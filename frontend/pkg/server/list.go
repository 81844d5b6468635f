package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// maxPage is how many resources a page has, unless the caller asks for fewer.
const maxPage = 100

// page is the body of a list.
type page struct {
	Value    []any  `json:"value"`
	NextLink string `json:"nextLink,omitempty"`
}

// scope is the lower-case ARM id that everything in the list of the path starts with.
func (rq *request) scope() string {
	scope := "/subscriptions/" + rq.param(subscriptionParam) + "/"
	if group := rq.param(resourceGroupParam); group != "" {
		scope += "resourceGroups/" + group + "/"
	}
	if rq.param(clusterParam) != "" {
		scope = rq.clusterID() + "/"
	}
	return strings.ToLower(scope)
}

// list answers with one page of the resources of a type that are in the scope of the path, in order of id.
func list[D, R any](t resourceType[D, R]) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		if rq.param(clusterParam) != "" {
			parent, err := s.parent(ctx, rq)
			if err != nil {
				return err
			}
			if parent == nil {
				return notFound(rq.clusterID())
			}
		}
		return listPage(s, ctx, rq, t)
	}
}

func listPage[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R]) error {
	limit, err := rq.top()
	if err != nil {
		return err
	}
	collection := t.collection(s.Database)
	scope := rq.scope()
	// A token is good for the list that it was given for, whatever the size of its pages.
	sealedFor := string(collection.Kind()) + " " + scope
	position := ""
	if token := rq.queryValue("$skipToken"); token != "" {
		if position, err = s.SkipTokens.Open(sealedFor, token); err != nil {
			return apierror.New(apierror.InvalidParameter, "The skip token is not valid for this list.").WithTarget("$skipToken")
		}
	}
	items, next, err := collection.List(ctx, rq.param(subscriptionParam), scope, position, limit)
	if err != nil {
		return err
	}
	answer := page{Value: make([]any, len(items))}
	for i, item := range items {
		answer.Value[i] = t.encode(rq.version, &item.Value)
	}
	if next != "" {
		answer.NextLink = rq.nextLink(s.SkipTokens.Seal(sealedFor, next))
	}
	return rq.w.json(http.StatusOK, answer)
}

// top is the size of the page that the caller asks for, at most maxPage.
func (rq *request) top() (int, error) {
	text := rq.queryValue("$top")
	if text == "" {
		return maxPage, nil
	}
	top, err := strconv.ParseInt(text, 10, 32)
	if err != nil || top < 1 {
		return 0, apierror.New(apierror.InvalidParameter, "$top must be a whole number greater than zero.").WithTarget("$top")
	}
	return min(int(top), maxPage), nil
}

// nextLink is the URL of the next page, as ARM's client has to ask for it.
func (rq *request) nextLink(token string) string {
	next := rq.base()
	next.Path = rq.http.URL.Path
	if referer := rq.referer(); referer != nil && referer.Path != "" {
		next.Path = referer.Path
	}
	query := rq.http.URL.Query()
	for name := range query {
		if strings.EqualFold(name, "$skipToken") {
			query.Del(name)
		}
	}
	query.Set("$skipToken", token)
	next.RawQuery = query.Encode()
	return next.String()
}
