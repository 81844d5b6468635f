// Package restapi serves Maestro's REST API, /api/maestro/v1, with the schemas of the published OpenAPI. Clients create, list,
// relabel and delete consumers, and list, read and delete resource bundles. Bundles are created and changed through the
// CloudEvents service only. Lists have a stable order. A malformed search is rejected with 400.
package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	strictjson "sigs.k8s.io/json"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

const (
	root = maestroapi.RESTPath
	// maxPage is the largest page of the published API.
	maxPage = 65500
	// maxBody bounds the body of a request.
	maxBody = 1 << 20
)

// Options configure the API.
type Options struct {
	Store *store.Store
	// Deleted is called with the consumer of each resource that a client deletes.
	Deleted func(consumer string)
	// Registered is called after a consumer was created.
	Registered func()
	Log        *slog.Logger
}

type api struct{ o Options }

// route is a route of the API: a pattern of http.ServeMux and its operation.
type route struct {
	pattern   string
	operation operation
}

func (a *api) routes() []route {
	return []route{
		{"GET " + root + "/consumers", a.listConsumers},
		{"POST " + root + "/consumers", a.createConsumer},
		{"GET " + root + "/consumers/{id}", a.getConsumer},
		{"PATCH " + root + "/consumers/{id}", a.patchConsumer},
		{"DELETE " + root + "/consumers/{id}", a.deleteConsumer},
		{"GET " + root + "/resource-bundles", a.listBundles},
		{"GET " + root + "/resource-bundles/{id}", a.getBundle},
		{"DELETE " + root + "/resource-bundles/{id}", a.deleteBundle},
	}
}

// Patterns returns the patterns of all routes of the API. The authorization table must have a rule for each.
func Patterns() []string {
	var patterns []string
	for _, r := range (&api{}).routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Handler returns the handler of the API. It does not authorize requests; see mesh.Authorizer.
func Handler(o Options) http.Handler {
	a := &api{o}
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		mux.Handle(r.pattern, a.handle(r.operation))
	}
	mux.Handle("/", a.handle(func(r *http.Request) (int, any, error) {
		return 0, nil, resource.Errorf(maestroapi.ReasonNotFound, "no such path: %s %s", r.Method, r.URL.Path)
	}))
	return mux
}

// operation returns the status and the body of the response to a request.
type operation func(*http.Request) (status int, body any, err error)

// handle returns a handler that writes the result of an operation as JSON.
func (a *api) handle(operation operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		status, body, err := operation(r.WithContext(ctx))
		if err != nil {
			status, body = a.failure(r, err)
		}
		if body == nil {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	})
}

// codeOf maps reasons to HTTP status codes and to the error codes of the published API.
var codeOf = map[maestroapi.Reason]struct{ status, code int }{
	maestroapi.ReasonMalformed:       {http.StatusBadRequest, 21},
	maestroapi.ReasonTooLarge:        {http.StatusBadRequest, 8},
	maestroapi.ReasonUnknownConsumer: {http.StatusBadRequest, 8},
	maestroapi.ReasonNotFound:        {http.StatusNotFound, 7},
	maestroapi.ReasonAlreadyExists:   {http.StatusConflict, 6},
	maestroapi.ReasonVersionConflict: {http.StatusConflict, 6},
	maestroapi.ReasonBeingDeleted:    {http.StatusConflict, 6},
	maestroapi.ReasonConsumerInUse:   {http.StatusConflict, 6},
	maestroapi.ReasonForeignSource:   {http.StatusForbidden, 4},
}

type failure struct {
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Href        string `json:"href"`
	Code        string `json:"code"`
	Reason      string `json:"reason"`
	OperationID string `json:"operation_id"`
}

func (a *api) failure(r *http.Request, err error) (int, failure) {
	status, code, reason := http.StatusInternalServerError, 9, "internal error"
	if fault := (*resource.Error)(nil); errors.As(err, &fault) {
		status, code, reason = codeOf[fault.Reason].status, codeOf[fault.Reason].code, fault.Message
	} else if store.IsUnavailable(err) {
		status, reason = http.StatusServiceUnavailable, "the database is unavailable; retry the request"
	}
	operation := uuid.NewString()
	if status >= 500 {
		a.o.Log.ErrorContext(r.Context(), "request failed", logkey.Client, mesh.ClientName(r.Context()), logkey.Method, r.Method, logkey.Path, r.URL.Path, logkey.RequestID, operation, logkey.Error, err)
	}
	id := strconv.Itoa(code)
	return status, failure{ID: id, Kind: "Error", Href: root + "/errors/" + id, Code: "maestro-" + id, Reason: reason, OperationID: operation}
}

// list is the schema of a page.
type list[T any] struct {
	Kind  string `json:"kind"`
	Page  int    `json:"page"`
	Size  int    `json:"size"`
	Total int    `json:"total"`
	Items []T    `json:"items"`
}

func pageOf(r *http.Request) (store.Page, error) {
	query := r.URL.Query()
	number := func(name string, fallback, least, most int) (int, error) {
		if query.Get(name) == "" {
			return fallback, nil
		}
		n, err := strconv.Atoi(query.Get(name))
		if err != nil || n < least {
			return 0, resource.Errorf(maestroapi.ReasonMalformed, "%s must be a number of at least %d", name, least)
		}
		return min(n, most), nil
	}
	page, err := number("page", 1, 1, 1<<20)
	if err != nil {
		return store.Page{}, err
	}
	size, err := number("size", 100, 0, maxPage)
	if err != nil {
		return store.Page{}, err
	}
	if query.Get("fields") != "" {
		return store.Page{}, resource.Errorf(maestroapi.ReasonMalformed, "fields is not supported")
	}
	return store.Page{Page: page, Size: size, Search: query.Get("search"), OrderBy: query.Get("orderBy")}, nil
}

// decode decodes the body of a request. It refuses fields that are unknown, given twice, or in another case, and names them.
func decode(r *http.Request, into any) error {
	content, err := io.ReadAll(r.Body)
	if err == nil {
		var rejected []error
		rejected, err = strictjson.UnmarshalStrict(content, into)
		err = errors.Join(append(rejected, err)...)
	}
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "malformed body: %s", strings.TrimPrefix(fmt.Sprint(err), "json: "))
	}
	return nil
}
