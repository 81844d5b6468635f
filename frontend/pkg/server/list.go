package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// maxPage is the most resources of a page.
const maxPage = 100

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

// listFixed responds with a page of a list that the process holds in memory. Positions are indices, because the list
// changes only with the configuration.
func (s *Server) listFixed(rq *request, name string, values []any) error {
	asked, err := s.parsePaging(rq, name+" "+rq.scope())
	if err != nil {
		return err
	}
	first := 0
	if asked.position != "" {
		if first, err = strconv.Atoi(asked.position); err != nil {
			return err
		}
	}
	first = min(first, len(values))
	end := min(first+asked.limit, len(values))
	var answer page
	for _, value := range values[first:end] {
		if err := answer.add(value); err != nil {
			return err
		}
	}
	if end < len(values) {
		answer.nextLink = s.nextLink(rq, asked, strconv.Itoa(end))
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

// The supported query options, a part of OData's system query options. The others would change the content of the list,
// so that ignoring them would be wrong; they are rejected. ARM itself provides them for lists across providers.
const (
	topOption       = "$top"
	skipTokenOption = "$skipToken"
)

// parsePaging returns the page that the query selects.
func (s *Server) parsePaging(rq *request, list string) (pageRequest, error) {
	for name := range rq.query {
		if strings.HasPrefix(name, "$") && !strings.EqualFold(name, topOption) && !strings.EqualFold(name, skipTokenOption) {
			return pageRequest{}, apierror.New(apierror.InvalidParameter, "The query option %s is not supported; lists have %s and %s.",
				wire.FormatValue(name), topOption, skipTokenOption).WithTarget(name)
		}
	}
	for _, name := range []string{topOption, skipTokenOption} {
		if len(rq.queryValues(name)) > 1 {
			return pageRequest{}, apierror.New(apierror.InvalidParameter, "%s must be given once.", name).WithTarget(name)
		}
	}
	a := pageRequest{list: list, limit: maxPage}
	if text := rq.queryValue(topOption); text != "" || rq.hasQuery(topOption) {
		top, err := strconv.ParseInt(text, 10, 32)
		if err != nil || top < 1 {
			return pageRequest{}, apierror.New(apierror.InvalidParameter, "%s must be a whole number greater than zero.", topOption).WithTarget(topOption)
		}
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

// nextLink returns the URL of the page at a position, as a client of ARM must send it.
func (s *Server) nextLink(rq *request, a pageRequest, position string) string {
	next := rq.base()
	next.Path = rq.http.URL.Path
	// The path of ARM's URL may have a prefix before the path of this request.
	if referer := rq.referer(); referer != nil && hasSuffixFold(referer.Path, next.Path) {
		next.Path = referer.Path
	}
	query := rq.http.URL.Query()
	for name := range query {
		if strings.EqualFold(name, skipTokenOption) {
			query.Del(name)
		}
	}
	query.Set(skipTokenOption, s.SkipTokens.Seal(a.list, position))
	next.RawQuery = query.Encode()
	return next.String()
}

func hasSuffixFold(text, suffix string) bool {
	return len(text) >= len(suffix) && strings.EqualFold(text[len(text)-len(suffix):], suffix)
}
