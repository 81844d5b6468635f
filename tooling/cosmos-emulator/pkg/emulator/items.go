package emulator

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// items serves /dbs/{d}/colls/{c}/docs and /docs/{id}.
func (s *Server) items(req *request) error {
	c, err := s.store.Container(req.segments[1], req.segments[3])
	if err != nil {
		return err
	}
	reader, err := s.reader(req, c)
	if err != nil {
		return err
	}
	if req.r.Header.Get("If-None-Match") != "" && req.operation != "read" && req.operation != "changefeed" {
		return badRequest("The header If-None-Match is supported only in reads and requests for changes.")
	}
	switch req.operation {
	case "query":
		return s.query(req, c, reader)
	case "changefeed":
		return s.changeFeed(req, c)
	case "batch":
		return s.executeBatch(req, c)
	case "read":
		return s.readItem(req, c, reader)
	case "create", "upsert", "replace", "delete":
		return s.writeItem(req, c)
	}
	return methodNotAllowed(req)
}

// sessionToken returns {range}:{version}#{lsn}, as in the service.
func sessionToken(rangeID string, lsn uint64) string {
	return rangeID + ":-1#" + strconv.FormatUint(lsn, 10)
}

// session sets the headers with the session token and the LSN.
func (req *request) session(c *store.Container, pk partition.Key, lsn uint64) {
	req.header(headerSession, sessionToken(c.RangeOf(pk.EPK()).ID, lsn))
	req.header(headerLSN, strconv.FormatUint(lsn, 10))
}

// readItem serves GET of an item.
func (s *Server) readItem(req *request, c *store.Container, reader *store.Reader) error {
	pk, err := req.key()
	if err != nil {
		return err
	}
	item, lsn, err := reader.Get(c, pk, req.segments[5])
	if err != nil {
		return err
	}
	req.session(c, pk, lsn)
	req.header(headerETag, item.ETag)
	if req.r.Header.Get("If-None-Match") == item.ETag {
		return req.respond(http.StatusNotModified, 1, nil)
	}
	return req.respond(http.StatusOK, readCharge(len(item.Body)), item.Body)
}

// writeItem serves the writes of one item.
func (s *Server) writeItem(req *request, c *store.Container) error {
	pk, err := req.key()
	if err != nil {
		return err
	}
	if (len(req.segments) == 6) == (req.r.Method == http.MethodPost) {
		return methodNotAllowed(req)
	}
	op := store.Operation{Verb: verbs[req.operation], IfMatch: req.r.Header.Get("If-Match")}
	if len(req.segments) == 6 {
		op.ID = req.segments[5]
	}
	if req.operation != "delete" {
		if op.Body, err = req.json(); err != nil {
			return err
		}
	}
	results, lsn, err := s.store.Transact(req.r.Context(), c, pk, []store.Operation{op})
	if err != nil {
		return err
	}
	r := results[0]
	req.session(c, pk, lsn)
	if r.Outcome == store.Deleted {
		return req.respond(http.StatusNoContent, writeCharge(0), nil)
	}
	req.header(headerETag, r.Item.ETag)
	status := http.StatusOK
	if r.Outcome == store.Created {
		status = http.StatusCreated
	}
	body := r.Item.Body
	if req.wantsMinimalResponse() {
		body = nil
	}
	return req.respond(status, writeCharge(len(r.Item.Body)), body)
}

// verbs maps the names of writes.
var verbs = map[string]store.Verb{"create": store.Create, "upsert": store.Upsert, "replace": store.Replace, "delete": store.Delete}

// The service's limits for a transactional batch.
const (
	maxBatchOperations = 100
	maxBatchBytes      = 2 << 20
)

// executeBatch serves a transactional batch.
func (s *Server) executeBatch(req *request, c *store.Container) error {
	if !isTrue(req.r.Header.Get(headerBatchAtomic)) {
		return badRequest("Only atomic batches are supported (header x-ms-cosmos-batch-atomic).")
	}
	pk, err := req.key()
	if err != nil {
		return err
	}
	if len(req.body) > maxBatchBytes {
		return tooLarge()
	}
	v, err := req.json()
	if err != nil {
		return err
	}
	if v.Kind != document.Array || len(v.Arr) == 0 {
		return badRequest("The batch is not a JSON array of at least one operation.")
	}
	if len(v.Arr) > maxBatchOperations {
		return badRequest("Batch request has more operations than supported: %d, the maximum is %d.", len(v.Arr), maxBatchOperations)
	}
	ops := make([]store.Operation, len(v.Arr))
	for i, o := range v.Arr {
		name := strings.ToLower(o.Get("operationType").Str)
		if action := itemActions[name]; action != "" {
			if err := s.require(req, action); err != nil {
				return err
			}
		}
		ops[i] = store.Operation{Verb: verbs[name], ID: o.Get("id").Str, Body: o.Get("resourceBody"), IfMatch: o.Get("ifMatch").Str}
		if ops[i].Verb == 0 || o.Get("ifNoneMatch").IsDefined() {
			return badRequest("The operation %s of a batch is not supported: the emulator supports Create, Upsert, Replace and Delete, with ifMatch.", o.JSON())
		}
	}
	results, lsn, err := s.store.Transact(req.r.Context(), c, pk, ops)
	if err != nil {
		var failed *store.FailedOperation
		if errors.As(err, &failed) && failed.Err.SubStatus != store.SubStatusOwnerNotFound {
			return req.respondBatchFailure(len(ops), failed.Index, toStatusError(err))
		}
		return err
	}
	req.session(c, pk, lsn)
	minimal := req.wantsMinimalResponse()
	body := []byte{'['}
	total := 0.0
	for i, r := range results {
		if i > 0 {
			body = append(body, ',')
		}
		charge := writeCharge(len(r.Item.Body))
		status := http.StatusOK
		switch r.Outcome {
		case store.Created:
			status = http.StatusCreated
		case store.Deleted:
			status = http.StatusNoContent
		}
		total += charge
		body = fmt.Appendf(body, `{"statusCode":%d,"requestCharge":%.2f`, status, charge)
		if r.Item.ETag != "" {
			body = append(body, `,"eTag":`...)
			body = document.AppendString(body, r.Item.ETag)
		}
		if r.Item.Body != nil && !minimal {
			body = append(append(body, `,"resourceBody":`...), r.Item.Body...)
		}
		body = append(body, '}')
	}
	return req.respond(http.StatusOK, total, append(body, ']'))
}

// respondBatchFailure responds to a batch with a rejected operation: its status is that of e, and that of the others is
// 424.
func (req *request) respondBatchFailure(n, index int, e *statusError) error {
	body := []byte{'['}
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		status, sub := http.StatusFailedDependency, 0
		if i == index {
			status, sub = e.status, e.subStatus
		}
		body = fmt.Appendf(body, `{"statusCode":%d,"subStatusCode":%d,"requestCharge":1.00`, status, sub)
		if i == index {
			body = append(body, `,"message":`...)
			body = document.AppendString(body, e.message)
		}
		body = append(body, '}')
	}
	return req.respond(http.StatusMultiStatus, float64(n), append(body, ']'))
}
