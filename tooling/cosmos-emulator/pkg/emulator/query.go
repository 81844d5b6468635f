package emulator

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/sql"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// defaultPage is the page size without x-ms-max-item-count.
const defaultPage = 100

// msgNotServable is the message of the service by which old clients recognize that they must merge results themselves.
const msgNotServable = "The provided cross partition query can not be directly served by the gateway. " +
	"This is a first chance (internal) exception that all newer clients will know how to handle gracefully. " +
	"This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message. " +
	"(The query has ORDER BY; send the partition key in x-ms-documentdb-partitionkey.)"

// subStatusNotServable is the sub-status for msgNotServable.
const subStatusNotServable = 1004

// msgCrossPartitionDisabled is the service's message for a query over several partitions without the required header.
const msgCrossPartitionDisabled = "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, " +
	"specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."

// query serves a query over the items of a container, {"query": …, "parameters": [{"name": …, "value": …}]}.
func (s *Server) query(req *request, c *store.Container, reader *store.Reader) error {
	body, err := req.json()
	if err != nil {
		return err
	}
	text := body.Get("query")
	if text.Kind != document.String {
		return badRequest("The request body has no query.")
	}
	params := map[string]document.Value{}
	for _, p := range body.Get("parameters").Arr {
		params[p.Get("name").Str] = p.Get("value")
	}
	q, err := sql.Parse(text.Str)
	if err != nil {
		return err
	}
	scope, err := s.scope(req, c)
	if err != nil {
		return err
	}
	if scope == (store.Scope{}) {
		if !isTrue(req.r.Header.Get(headerCrossPartition)) {
			return badRequest("%s", msgCrossPartitionDisabled)
		}
		if q.Ordered() {
			return &statusError{status: http.StatusBadRequest, subStatus: subStatusNotServable, message: msgNotServable}
		}
	}
	var lsn uint64
	required := q.RequiredSubstrings(params)
	empty := slices.ContainsFunc(q.RequiredFolders(params), func(folder string) bool { return !s.store.MayHaveFolder(c, folder) })
	src := func(after []byte, visit func([]byte, document.Value) (bool, error)) error {
		var err error
		if empty {
			lsn, err = reader.LSN(c)
			return err
		}
		lsn, err = reader.Scan(c, scope, after, func(at store.Position, item store.Item) (bool, error) {
			if slices.ContainsFunc(required, func(substring []byte) bool { return !bytes.Contains(item.Body, substring) }) {
				return true, nil
			}
			doc, err := document.Parse(item.Body)
			if err != nil {
				return false, err
			}
			return visit(at, doc)
		})
		return err
	}
	page, err := s.runPage(req, q, src, params, c.ID(), text.Str)
	if err != nil {
		return err
	}
	id := c.Ranges[0].ID
	if scope.Key != "" {
		id = c.RangeOf(scope.Key.EPK()).ID
	} else if h := req.r.Header.Get(headerRangeID); h != "" {
		id = h
	}
	req.header(headerSession, sessionToken(id, lsn))
	// The client requests these metrics with each query.
	req.header(headerQueryMetrics, fmt.Sprintf("retrievedDocumentCount=%d;outputDocumentCount=%d", page.Read, len(page.Rows)))
	return req.respond(http.StatusOK, queryCharge(page.Read), feedBody(c.ID(), "Documents", page.Rows))
}

// scope returns the part of the container that the headers select.
func (s *Server) scope(req *request, c *store.Container) (store.Scope, error) {
	var scope store.Scope
	h := req.r.Header
	if key := h.Get(headerPartitionKey); key != "" && key != "[]" {
		var err error
		if scope.Key, err = req.key(); err != nil {
			return scope, err
		}
	}
	if id := h.Get(headerRangeID); id != "" {
		r, err := c.Range(id)
		if err != nil {
			return scope, err
		}
		scope.Range = r.Range()
	}
	return scope, nil
}

// runPage runs a query from the continuation of the request and sets the next continuation.
func (s *Server) runPage(req *request, q *sql.Query, src sql.Source, params map[string]document.Value, rid, text string) (*sql.Page, error) {
	n, err := req.maxItems(defaultPage)
	if err != nil {
		return nil, err
	}
	// A token is valid only for the query that returned it.
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\n%s\n%s\n%s\n", rid, text, req.r.Header.Get(headerPartitionKey), req.r.Header.Get(headerRangeID))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		fmt.Fprintf(sum, "%s=%s\n", name, params[name].JSON())
	}
	prefix := fmt.Sprintf("hcp2.%016x.", sum.Sum64())
	var token *sql.Token
	if h := req.r.Header.Get(headerContinuation); h != "" {
		rest, ok := strings.CutPrefix(h, prefix)
		if !ok {
			return nil, badRequest("The continuation token was not issued for this query.")
		}
		if token, err = sql.DecodeToken(rest); err != nil {
			return nil, badRequest("%v", err)
		}
	}
	page, err := q.Run(src, params, token, n, maxPageBytes)
	if err != nil {
		return nil, err
	}
	if page.Next != nil {
		req.header(headerContinuation, prefix+page.Next.Encode())
	}
	return page, nil
}
