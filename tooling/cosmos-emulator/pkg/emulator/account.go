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
		"userReplicationPolicy":    map[string]any{"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
		"userConsistencyPolicy":    map[string]any{"defaultConsistencyLevel": s.consistency},
		"systemReplicationPolicy":  map[string]any{"minReplicaSetSize": 1, "maxReplicasetSize": 4},
		"readPolicy":               map[string]any{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		"queryEngineConfiguration": queryEngineConfiguration,
	})
	if err != nil {
		return err
	}
	return req.respond(http.StatusOK, 0, body)
}

// queryEngineConfiguration describes the query engine to clients that merge results themselves.
const queryEngineConfiguration = `{"maxSqlQueryInputLength":524288,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":2000,"maxLogicalOrPerSqlQuery":2000,"maxUdfRefPerSqlQuery":0,"maxInExpressionItemsCount":16000,"queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"sqlAllowLike":true,"sqlAllowGroupByClause":true,"maxSpatialQueryCells":12,"spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"sqlAllowTop":true,"enableSpatialIndexing":true}`

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

// databases serves /dbs and /dbs/{name}.
func (s *Server) databases(req *request) error {
	if len(req.segments) == 1 {
		switch req.operation {
		case "create":
			return s.createDatabase(req)
		case "query", "list":
			var all []document.Value
			for _, d := range s.store.Databases() {
				all = append(all, databaseValue(d))
			}
			return s.queryResources(req, "", "Databases", all)
		}
		return methodNotAllowed(req)
	}
	d, err := s.store.Database(req.segments[1])
	if err != nil {
		return err
	}
	switch req.operation {
	case "read":
		if notModified(req, d.ETag()) {
			req.header(headerETag, d.ETag())
			return req.respond(http.StatusNotModified, 1, nil)
		}
		req.header(headerETag, d.ETag())
		return req.respond(http.StatusOK, 1, document.Append(nil, databaseValue(d)))
	case "delete":
		if err := s.store.DeleteDatabase(req.r.Context(), d.Name, req.r.Header.Get("If-Match")); err != nil {
			return err
		}
		return req.respond(http.StatusNoContent, 4.95, nil)
	}
	return methodNotAllowed(req)
}

// notModified reports whether If-None-Match matches an ETag.
func notModified(req *request, etag string) bool {
	h := req.r.Header.Get("If-None-Match")
	return h != "" && (h == "*" || h == etag)
}

// createDatabase serves POST /dbs.
func (s *Server) createDatabase(req *request) error {
	v, err := req.json()
	if err != nil {
		return err
	}
	t, err := throughput(req)
	if err != nil {
		return err
	}
	d, err := s.store.CreateDatabase(req.r.Context(), v.Get("id").Str, t)
	if err != nil {
		return err
	}
	req.header(headerETag, d.ETag())
	return req.respond(http.StatusCreated, 4.95, document.Append(nil, databaseValue(d)))
}
