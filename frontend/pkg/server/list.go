package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// The numbers of resources of a page: without $top, and at most.
const (
	defaultPage = 20
	maxPage     = 100
)

// maxPageBytes is the size after which a page ends. ARM discards a response of more than 8 MiB and reports an error of
// the service.
const maxPageBytes = 4 << 20

// page is the body of a list response. Its values are JSON.
type page struct {
	values   [][]byte
	nextLink string
}

// add appends a value.
func (p *page) add(value any) error {
	content, err := marshal(value)
	if err != nil {
		return err
	}
	p.values = append(p.values, content)
	return nil
}

// MarshalJSON implements json.Marshaler. It copies the encoded values, which json.Marshal would parse again.
func (p page) MarshalJSON() ([]byte, error) {
	content := []byte(`{"value":[`)
	content = append(content, bytes.Join(p.values, []byte(","))...)
	content = append(content, ']')
	if p.nextLink != "" {
		link, err := json.Marshal(p.nextLink)
		if err != nil {
			return nil, err
		}
		content = append(append(content, `,"nextLink":`...), link...)
	}
	return append(content, '}'), nil
}

// scope returns the lower-case prefix of the ARM IDs in the list of the path.
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

// list returns a handler that responds with a page of the resources of a type in the path's scope, in order of ID.
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
	collection := t.collection(s.Database)
	scope := rq.scope()
	asked, err := s.parsePaging(rq, string(collection.Kind())+" "+scope)
	if err != nil {
		return err
	}
	items, next, err := collection.List(ctx, rq.param(subscriptionParam), scope, asked.position, asked.limit)
	if err != nil {
		return err
	}
	var answer page
	size := 0
	for i, item := range items {
		if err := answer.add(t.encode(rq.version, &item.Value)); err != nil {
			return err
		}
		if size += len(answer.values[i]); size >= maxPageBytes && i < len(items)-1 {
			next = hub.Key(item.Key.ResourceID)
			break
		}
	}
	if next != "" {
		answer.nextLink = s.nextLink(rq, asked, next)
	}
	return rq.w.json(http.StatusOK, answer)
}

// writeList responds with a list that the process holds in memory. It has one page.
func (rq *request) writeList(values []any) error {
	var answer page
	for _, value := range values {
		if err := answer.add(value); err != nil {
			return err
		}
	}
	return rq.w.json(http.StatusOK, answer)
}

// pageRequest is the page that a request selects.
type pageRequest struct {
	// list identifies the list. A skip token is valid only for the list that returned it, with any page size.
	list string
	// position is the start of the page; empty means the start of the list.
	position string
	limit    int
}

// The query options of the lists of stored resources.
const (
	topOption       = "$top"
	skipTokenOption = "$skipToken"
)

func pagingOptions() []string { return []string{topOption, skipTokenOption} }

// parsePaging returns the page that the query selects. As in the published service, $top counts only together with
// $skipToken, and a value that is not a positive number is ignored.
func (s *Server) parsePaging(rq *request, list string) (pageRequest, error) {
	a := pageRequest{list: list, limit: defaultPage}
	if !rq.hasQuery(skipTokenOption) {
		return a, nil
	}
	if top, err := strconv.ParseInt(rq.queryValue(topOption), 10, 32); err == nil && top > 0 {
		a.limit = min(int(top), maxPage)
	}
	if token := rq.queryValue(skipTokenOption); token != "" {
		var err error
		if a.position, err = s.SkipTokens.Open(list, token); err != nil {
			return pageRequest{}, apierror.New(apierror.InvalidParameter, "The skip token is not valid for this list.").WithTarget(skipTokenOption)
		}
	}
	return a, nil
}

// nextLink returns the URL of the page at a position, as a client of ARM must send it: the URL in Referer with another
// $skipToken. Without Referer it is the request's own URL.
func (s *Server) nextLink(rq *request, a pageRequest, position string) string {
	next := rq.base()
	next.Path = rq.http.URL.Path
	query := rq.http.URL.Query()
	if referer := rq.referer(); referer != nil {
		next.Path, next.RawPath = referer.Path, referer.RawPath
		query = referer.Query()
	}
	for name := range query {
		if asciifold.Equal(name, skipTokenOption) {
			query.Del(name)
		}
	}
	query.Set(skipTokenOption, s.SkipTokens.Seal(a.list, position))
	next.RawQuery = query.Encode()
	return next.String()
}
