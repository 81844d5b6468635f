package emulator

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/sql"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// defaultPage is the page size without x-ms-max-item-count.
const defaultPage = 100

// msgNotServable is the message of the service by which old clients recognize that they must merge results themselves.
const msgNotServable = "The provided cross partition query can not be directly served by the gateway. " +
	"This is a first chance (internal) exception that all newer clients will know how to handle gracefully. " +
	"This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message. " +
	"(The query has %s; restrict it to one partition key.)"

// subStatusNotServable is the sub-status for msgNotServable.
const subStatusNotServable = 1004

// msgCrossPartitionDisabled is the service's message for a query over several partitions without the required header.
const msgCrossPartitionDisabled = "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, " +
	"specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."

// parseQuery parses {"query": …, "parameters": [{"name": …, "value": …}]}.
func (req *request) parseQuery() (string, map[string]document.Value, error) {
	v, err := req.json()
	if err != nil {
		return "", nil, err
	}
	text := v.Get("query")
	if text.Kind != document.String {
		return "", nil, badRequest("The request body has no query.")
	}
	params := map[string]document.Value{}
	for _, p := range v.Get("parameters").Arr {
		name := p.Get("name").Str
		if !strings.HasPrefix(name, "@") {
			return "", nil, badRequest("The query parameter name %q does not begin with '@'.", name)
		}
		params[name] = p.Get("value")
	}
	return text.Str, params, nil
}

// query serves a query over the items of a container.
func (s *Server) query(req *request, c *store.Container, reader *store.Reader) error {
	text, params, err := req.parseQuery()
	if err != nil {
		return err
	}
	return s.queryItems(req, c, reader, text, params)
}

// queryItems runs a query over the items within the scope of the request and the filter.
func (s *Server) queryItems(req *request, c *store.Container, reader *store.Reader, text string, params map[string]document.Value) error {
	q, err := sql.Parse(text)
	if err != nil {
		return err
	}
	if err := checkCompositeIndex(q, c); err != nil {
		return err
	}
	if isTrue(req.r.Header.Get(headerQueryPlan)) {
		return s.queryPlan(req, q)
	}
	scope, err := s.scope(req, c)
	if err != nil {
		return err
	}
	if scope.Key == nil {
		scope.Key = keyFromFilter(c.PK, q.Equalities(params))
	}
	if scope.Key == nil && scope.Range == (partition.Range{}) && req.operation == "query" {
		if !isTrue(req.r.Header.Get(headerCrossPartition)) {
			return badRequest("%s", msgCrossPartitionDisabled)
		}
		if clause := q.NeedsMerge(); clause != "" && !s.opts.ServeCrossPartition {
			return &statusError{status: http.StatusBadRequest, subStatus: subStatusNotServable, message: fmt.Sprintf(msgNotServable, clause)}
		}
	}
	var lsn uint64
	addresses, named := itemsNamedByFilter(c.PK, q, params)
	required := q.RequiredSubstrings(params)
	empty := slices.ContainsFunc(q.RequiredFolders(params), func(folder string) bool { return !s.store.MayHaveFolder(c, folder) })
	src := func(after []byte, visit func([]byte, document.Value) (bool, error)) error {
		parse := func(at store.Position, item store.Item) (bool, error) {
			for _, substring := range required {
				if !bytes.Contains(item.Body, substring) {
					return true, nil
				}
			}
			doc, err := document.Parse(item.Body)
			if err != nil {
				return false, err
			}
			return visit(at, doc)
		}
		var err error
		if empty {
			lsn, err = reader.LSN(c)
		} else if named {
			lsn, err = reader.Lookup(c, scope, addresses, after, parse)
		} else {
			lsn, err = reader.Scan(c, scope, after, parse)
		}
		return err
	}
	page, err := s.runPage(req, q, src, params, c.ID(), text)
	if err != nil {
		return err
	}
	id := c.Ranges[0].ID
	if scope.Key != nil && len(scope.Key) == len(c.PK.Paths) {
		id = c.RangeOf(c.PK.EPK(scope.Key)).ID
	} else if h := req.r.Header.Get(headerRangeID); h != "" {
		id = h
	}
	req.header(headerSession, sessionToken(id, lsn))
	req.header(headerItemCount, strconv.Itoa(len(page.Rows)))
	if isTrue(req.r.Header.Get(headerWantQueryMetrics)) {
		req.header(headerQueryMetrics, fmt.Sprintf(
			"totalExecutionTimeInMs=0.10;queryCompileTimeInMs=0.01;queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;"+
				"queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=0.05;indexLookupTimeInMs=0.00;documentLoadTimeInMs=0.02;systemFunctionExecuteTimeInMs=0.00;"+
				"userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount=%d;retrievedDocumentSize=0;outputDocumentCount=%d;outputDocumentSize=0;writeOutputTimeInMs=0.00;indexUtilizationRatio=1.00",
			page.Read, len(page.Rows)))
	}
	if isTrue(req.r.Header.Get(headerWantIndexUse)) {
		req.header(headerIndexUse, base64.StdEncoding.EncodeToString([]byte(
			`{"UtilizedSingleIndexes":[],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}`)))
	}
	return req.respond(http.StatusOK, queryCharge(page.Read), feedBody(c.ID(), "Documents", page.Rows))
}

// scope returns the part of the container that the headers select.
func (s *Server) scope(req *request, c *store.Container) (store.Scope, error) {
	var scope store.Scope
	var err error
	if scope.Key, err = req.key(c.PK); err != nil {
		return scope, err
	}
	h := req.r.Header
	if id := h.Get(headerRangeID); id != "" {
		// SDKs may add the container's RID as a prefix.
		id = id[strings.LastIndexByte(id, ',')+1:]
		r, err := c.Range(id)
		if err != nil {
			return scope, err
		}
		scope.Range = r.Range()
	}
	start, end := h.Get(headerStartEPK), h.Get(headerEndEPK)
	if start == "" && end == "" {
		return scope, nil
	}
	if scope.Range == (partition.Range{}) {
		scope.Range = partition.Range{Max: partition.MaxEPK}
	}
	if start != "" && partition.CompareEPK(start, scope.Range.Min) > 0 {
		scope.Range.Min = start
	}
	if end != "" && (scope.Range.Max == partition.MaxEPK || partition.CompareEPK(end, scope.Range.Max) < 0) {
		scope.Range.Max = end
	}
	return scope, nil
}

// keyFromFilter returns the partition key to which the filter restricts a query, or nil.
func keyFromFilter(d partition.Definition, equalities sql.Equalities) partition.Key {
	key := make(partition.Key, 0, len(d.Paths))
	for _, p := range d.Paths {
		values := equalities[sql.PathKey(p)]
		if len(values) != 1 || isNotScalar(values[0]) {
			return nil
		}
		key = append(key, values[0])
	}
	return key
}

// itemsNamedByFilter returns the items that a filter names by partition key and ID, as the client's ReadMany does. It
// returns false if the filter is not restricted to such items.
func itemsNamedByFilter(d partition.Definition, q *sql.Query, params map[string]document.Value) ([]store.ItemAddress, bool) {
	paths := make([][]string, 0, len(d.Paths)+1)
	for _, p := range d.Paths {
		paths = append(paths, p)
	}
	combinations, ok := q.KeyCombinations(append(paths, []string{"id"}), params)
	if !ok {
		return nil, false
	}
	addresses := make([]store.ItemAddress, 0, len(combinations))
	for _, values := range combinations {
		n := len(values) - 1
		if values[n].Kind != document.String || slices.ContainsFunc(values[:n], isNotScalar) {
			continue // no item has these values
		}
		addresses = append(addresses, store.ItemAddress{Key: values[:n], ID: values[n].Str})
	}
	return addresses, true
}

// isNotScalar reports whether a value cannot be a component of a partition key.
func isNotScalar(v document.Value) bool { return !v.IsDefined() || v.Kind > document.String }

// runPage runs a query from the continuation of the request and sets the next continuation.
func (s *Server) runPage(req *request, q *sql.Query, src sql.Source, params map[string]document.Value, rid, text string) (*sql.Page, error) {
	n, err := req.maxItems(defaultPage)
	if err != nil {
		return nil, err
	}
	// A token is valid only for the query that returned it.
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\n%s\n%s\n%s\n", rid, text, req.r.Header.Get(headerPartitionKey), req.r.Header.Get(headerRangeID))
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(sum, "%s=%s\n", name, document.Canonical(params[name]))
	}
	prefix := fmt.Sprintf("hcp1.%016x.", sum.Sum64())
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

// queryResources lists databases, containers or offers, filtered by the query of the request if it has one.
func (s *Server) queryResources(req *request, rid, name string, all []document.Value) error {
	text, params := "SELECT * FROM c", map[string]document.Value(nil)
	if req.operation == "query" {
		var err error
		if text, params, err = req.parseQuery(); err != nil {
			return err
		}
	}
	q, err := sql.Parse(text)
	if err != nil {
		return err
	}
	// Positions are IDs. The lists are sorted by ID.
	src := func(after []byte, visit func([]byte, document.Value) (bool, error)) error {
		for _, v := range all {
			at := []byte(v.Get("id").Str)
			if after != nil && bytes.Compare(at, after) <= 0 {
				continue
			}
			if more, err := visit(at, v); err != nil || !more {
				return err
			}
		}
		return nil
	}
	page, err := s.runPage(req, q, src, params, rid, text)
	if err != nil {
		return err
	}
	return req.respond(http.StatusOK, queryCharge(page.Read), feedBody(rid, name, page.Rows))
}

// checkCompositeIndex rejects an ORDER BY of several properties without a composite index that has them in this order,
// with the same directions or with all directions reversed.
func checkCompositeIndex(q *sql.Query, c *store.Container) error {
	paths, err := q.OrderPaths()
	if err != nil || len(paths) < 2 {
		return err
	}
	for _, index := range c.Properties.Get("indexingPolicy").Get("compositeIndexes").Arr {
		if len(index.Arr) != len(paths) {
			continue
		}
		same, reverse := true, true
		for i, part := range index.Arr {
			p, err := partition.ParsePath(part.Get("path").Str)
			desc := strings.EqualFold(part.Get("order").Str, "descending")
			matches := err == nil && slices.Equal(p, paths[i].Path)
			same = same && matches && desc == paths[i].Desc
			reverse = reverse && matches && desc != paths[i].Desc
		}
		if same || reverse {
			return nil
		}
	}
	return badRequest("The order by query does not have a corresponding composite index that it can be served from.")
}

// queryPlan responds to clients that merge results themselves, for queries that need no rewriting.
func (s *Server) queryPlan(req *request, q *sql.Query) error {
	if clause := q.NeedsMerge(); clause != "" {
		return badRequest("Query plans for queries with %s are not supported.", clause)
	}
	return req.respond(http.StatusOK, 1, []byte(`{"partitionedQueryExecutionInfoVersion":2,"queryInfo":{"distinctType":"None","top":null,"offset":null,"limit":null,`+
		`"orderBy":[],"orderByExpressions":[],"groupByExpressions":[],"groupByAliases":[],"aggregates":[],"groupByAliasToAggregateType":{},"rewrittenQuery":"","hasSelectValue":false,"dCountInfo":null},`+
		`"queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}]}`))
}
