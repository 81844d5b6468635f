package emulator

import (
	"encoding/json"
	"net/http"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// account serves GET /: the properties of the account and the URLs of its regions.
func (s *Server) account(req *request) error {
	if req.r.Method != http.MethodGet {
		return methodNotAllowed(req)
	}
	endpoint := s.opts.Endpoint
	if endpoint == "" {
		endpoint = "http://" + req.r.Host + "/"
		if req.r.TLS != nil {
			endpoint = "https://" + req.r.Host + "/"
		}
	}
	type location struct {
		Name     string `json:"name"`
		Endpoint string `json:"databaseAccountEndpoint"`
	}
	here := []location{{s.opts.Region, endpoint}}
	body, err := json.Marshal(map[string]any{
		"_self": "", "id": "cosmos-emulator", "_rid": "cosmos-emulator", "media": "//media/", "addresses": "//addresses/", "_dbs": "//dbs/",
		"writableLocations": here, "readableLocations": here, "enableMultipleWriteLocations": false,
		"userConsistencyPolicy": map[string]any{"defaultConsistencyLevel": s.consistency},
	})
	if err != nil {
		return err
	}
	return req.respond(http.StatusOK, 0, body)
}

// numberValue returns a number.
func numberValue(n float64) document.Value { return document.FromNumber(n) }

// databaseValue returns the representation of a database.
func databaseValue(d *store.Database) document.Value {
	return document.Value{Kind: document.Object, Obj: []document.Member{
		{Name: "id", Value: document.FromString(d.Name)},
		{Name: "_rid", Value: document.FromString(d.ID())},
		{Name: "_self", Value: document.FromString(d.Self())},
		{Name: "_etag", Value: document.FromString(d.ETag())},
		{Name: "_colls", Value: document.FromString("colls/")},
		{Name: "_users", Value: document.FromString("users/")},
		{Name: "_ts", Value: numberValue(float64(d.TS))},
	}}
}

// databases serves POST /dbs, and GET and DELETE of /dbs/{name}.
func (s *Server) databases(req *request) error {
	switch {
	case req.operation == "create" && len(req.segments) == 1:
		return s.createDatabase(req)
	case req.operation == "read":
		d, err := s.store.Database(req.segments[1])
		if err != nil {
			return err
		}
		req.header(headerETag, d.ETag())
		return req.respond(http.StatusOK, 1, document.Append(nil, databaseValue(d)))
	case req.operation == "delete":
		if err := s.store.DeleteDatabase(req.r.Context(), req.segments[1]); err != nil {
			return err
		}
		return req.respond(http.StatusNoContent, 4.95, nil)
	}
	return methodNotAllowed(req)
}

// createDatabase serves POST /dbs.
func (s *Server) createDatabase(req *request) error {
	v, err := req.json()
	if err != nil {
		return err
	}
	d, err := s.store.CreateDatabase(req.r.Context(), v.Get("id").Str)
	if err != nil {
		return err
	}
	req.header(headerETag, d.ETag())
	return req.respond(http.StatusCreated, 4.95, document.Append(nil, databaseValue(d)))
}
