package emulator

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// maxBody bounds a request body: the service's 2 MiB for an item or a batch, and room for the envelope, so that the error
// for an item that is slightly too large is about the item.
const maxBody = store.MaxItemBytes + 64<<10

// request is a parsed request with its response.
type request struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte

	segments     []string // the decoded path
	resourceType string   // the last resource type in the path
	link         string   // the resource link that the signature covers
	operation    string   // for faults and metrics
	stale        bool     // a fault selects the lagging replica
	activityID   string
	caller       caller
	status       int      // of the response
	values       []string // of the response headers
}

// parse parses the path and reads the body. The request can be used for an error response even if parse fails.
func (s *Server) parse(w http.ResponseWriter, r *http.Request) (*request, error) {
	req := &request{w: w, r: r, activityID: uuid.NewString()}
	var err error
	if req.segments, err = splitPath(r.URL.EscapedPath()); err != nil {
		return req, err
	}
	n := len(req.segments)
	switch {
	case n == 0:
	case n%2 == 1:
		req.resourceType, req.link = req.segments[n-1], strings.Join(req.segments[:n-1], "/")
	default:
		req.resourceType, req.link = req.segments[n-2], strings.Join(req.segments, "/")
	}
	req.operation = operationOf(req)
	if r.Body == nil || r.ContentLength == 0 {
		return req, nil
	}
	if req.body, err = readBody(r); err != nil {
		return req, err
	}
	return req, nil
}

// readBody reads the body of a request.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	var body []byte
	var err error
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	}
	if err != nil {
		return nil, badRequest("The request body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return nil, tooLarge()
	}
	return body, nil
}

// tooLarge returns the error for a body that is too large.
func tooLarge() error {
	return &statusError{status: http.StatusRequestEntityTooLarge, message: "Request size is too large"}
}

// splitPath decodes a path.
func splitPath(escaped string) ([]string, error) {
	var out []string
	for _, part := range strings.Split(strings.Trim(escaped, "/"), "/") {
		if part == "" {
			continue
		}
		decoded, err := url.PathUnescape(part)
		if err != nil {
			return nil, badRequest("the path is not properly escaped")
		}
		out = append(out, decoded)
	}
	return out, nil
}

// operationOf returns the name of a request's operation for faults and metrics.
func operationOf(req *request) string {
	h := req.r.Header
	item := len(req.segments)%2 == 0
	switch req.r.Method {
	case http.MethodGet:
		switch {
		case len(req.segments) == 0:
			return "account"
		case h.Get(headerAIM) != "" && req.resourceType == "docs":
			return "changefeed"
		case item:
			return "read"
		}
		return "list"
	case http.MethodPost:
		switch {
		case isTrue(h.Get(headerBatch)):
			return "batch"
		case isQuery(h):
			return "query"
		case isTrue(h.Get(headerUpsert)):
			return "upsert"
		}
		return "create"
	case http.MethodPut:
		return "replace"
	case http.MethodDelete:
		return "delete"
	}
	return "other"
}

// isTrue reports whether a header is true.
func isTrue(s string) bool { return strings.EqualFold(s, "true") }

// isQuery reports whether a POST is a query.
func isQuery(h http.Header) bool {
	return isTrue(h.Get(headerQuery)) || isTrue(h.Get(headerIsQuery)) ||
		strings.HasPrefix(h.Get("Content-Type"), "application/query+json")
}

// faultRequest returns the attributes that fault rules match.
func (req *request) faultRequest() faults.Request {
	f := faults.Request{Method: req.r.Method, ResourceType: req.resourceType, Operation: req.operation,
		PartitionKey: req.r.Header.Get(headerPartitionKey)}
	if len(req.segments) > 1 {
		f.Database = req.segments[1]
	}
	if len(req.segments) > 3 {
		f.Container = req.segments[3]
	}
	if len(req.segments) > 5 {
		f.ItemID = req.segments[5]
	}
	return f
}

// json parses the body.
func (req *request) json() (document.Value, error) {
	if len(req.body) == 0 {
		return document.Value{}, badRequest("The request has no body.")
	}
	v, err := document.Parse(req.body)
	if err != nil {
		return v, badRequest("The request body is not valid JSON: %v", err)
	}
	return v, nil
}

// key parses the partition key header.
func (req *request) key() (partition.Key, error) {
	key, err := partition.ParseHeader(req.r.Header.Get(headerPartitionKey))
	if err != nil {
		return "", badRequest("%v", err)
	}
	return key, nil
}

// maxItems returns the page size of the request, or standard without one.
func (req *request) maxItems(standard int) (int, error) {
	h := req.r.Header.Get(headerMaxItems)
	if h == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(h)
	if err != nil || n < -1 || n == 0 {
		return 0, badRequest("The header x-ms-max-item-count must be -1 or a positive number, not %q.", h)
	}
	if n == -1 {
		return dynamicPage, nil
	}
	return min(n, maxPage), nil
}

const (
	dynamicPage = 1000
	maxPage     = 10000
	// maxPageBytes is the service's limit for one page of results.
	maxPageBytes = 4 << 20
)

// wantsMinimalResponse reports whether the client requested a response without the written item.
func (req *request) wantsMinimalResponse() bool {
	return strings.EqualFold(req.r.Header.Get("Prefer"), "return=minimal")
}
