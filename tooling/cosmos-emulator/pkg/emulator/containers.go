package emulator

import (
	"net/http"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// containerValue returns the representation of a container.
func containerValue(c *store.Container) document.Value {
	v := c.Properties
	for _, m := range []document.Member{
		{Name: "_rid", Value: document.FromString(c.ID())},
		{Name: "_ts", Value: numberValue(float64(c.TS))},
		{Name: "_self", Value: document.FromString(c.Self())},
		{Name: "_etag", Value: document.FromString(c.ETag())},
		{Name: "_docs", Value: document.FromString("docs/")},
		{Name: "_sprocs", Value: document.FromString("sprocs/")},
		{Name: "_triggers", Value: document.FromString("triggers/")},
		{Name: "_udfs", Value: document.FromString("udfs/")},
		{Name: "_conflicts", Value: document.FromString("conflicts/")},
	} {
		v = v.With(m.Name, m.Value)
	}
	return v
}

// containers serves POST /dbs/{d}/colls and GET /dbs/{d}/colls/{c}.
func (s *Server) containers(req *request) error {
	switch {
	case req.operation == "create" && len(req.segments) == 3:
		return s.createContainer(req)
	case req.operation != "read":
		return methodNotAllowed(req)
	}
	c, err := s.store.Container(req.segments[1], req.segments[3])
	if err != nil {
		return err
	}
	req.header(headerETag, c.ETag())
	return req.respond(http.StatusOK, 1, document.Append(nil, containerValue(c)))
}

// createContainer serves POST /dbs/{d}/colls.
func (s *Server) createContainer(req *request) error {
	v, err := req.json()
	if err != nil {
		return err
	}
	c, err := s.store.CreateContainer(req.r.Context(), req.segments[1], v)
	if err != nil {
		return err
	}
	req.header(headerETag, c.ETag())
	return req.respond(http.StatusCreated, 4.95, document.Append(nil, containerValue(c)))
}

// ranges serves the physical partitions of a container. Clients read them as a change feed: with the ETag of the last
// read the response is 304 if nothing changed.
func (s *Server) ranges(req *request) error {
	if req.r.Method != http.MethodGet {
		return methodNotAllowed(req)
	}
	c, err := s.store.Container(req.segments[1], req.segments[3])
	if err != nil {
		return err
	}
	etag := `"` + strconv.Itoa(c.RangeSeq) + `"`
	req.header(headerETag, etag)
	if req.r.Header.Get("If-None-Match") == etag {
		return req.respond(http.StatusNotModified, 1, nil)
	}
	var rows [][]byte
	for _, r := range c.Ranges {
		parents := document.Value{Kind: document.Array}
		for _, p := range r.Parents {
			parents.Arr = append(parents.Arr, document.FromString(p))
		}
		rid := c.ID() + "-pkr-" + r.ID
		rows = append(rows, document.Append(nil, document.Value{Kind: document.Object, Obj: []document.Member{
			{Name: "id", Value: document.FromString(r.ID)},
			{Name: "_rid", Value: document.FromString(rid)},
			{Name: "_self", Value: document.FromString(c.Self() + "pkranges/" + rid + "/")},
			{Name: "_etag", Value: document.FromString(c.ETag())},
			{Name: "_ts", Value: numberValue(float64(c.TS))},
			{Name: "minInclusive", Value: document.FromString(r.Min)},
			{Name: "maxExclusive", Value: document.FromString(r.Max)},
			{Name: "ridPrefix", Value: numberValue(0)},
			{Name: "status", Value: document.FromString("online")},
			{Name: "parents", Value: parents},
		}}))
	}
	return req.respond(http.StatusOK, 1, feedBody(c.ID(), "PartitionKeyRanges", rows))
}
