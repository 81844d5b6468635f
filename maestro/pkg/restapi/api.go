// Package restapi serves Maestro's REST API, /api/maestro/v1, in the shapes of the published OpenAPI: consumers can be
// registered, listed, relabelled and removed; resource bundles can be listed, read and deleted. They are created and
// changed through the CloudEvents service only. Lists have a stable order, and a search that is not understood is
// answered with 400.
package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

const (
	root = maestroapi.RESTPath
	// maxPage is the largest page, as published.
	maxPage = 65500
	// maxBody bounds a request's body.
	maxBody = 1 << 20
)

// Options of the API.
type Options struct {
	Store *store.Store
	// Deleted is called with the consumer of each resource whose deletion was asked for.
	Deleted func(consumer string)
	// Registered is called after a consumer was registered.
	Registered func()
	Log        *slog.Logger
}

type api struct{ o Options }

// Handler serves the API.
func Handler(o Options) http.Handler {
	a := &api{o}
	mux := http.NewServeMux()
	mux.Handle("GET "+root+"/consumers", a.answer(a.listConsumers))
	mux.Handle("POST "+root+"/consumers", a.answer(a.createConsumer))
	mux.Handle("GET "+root+"/consumers/{id}", a.answer(a.getConsumer))
	mux.Handle("PATCH "+root+"/consumers/{id}", a.answer(a.patchConsumer))
	mux.Handle("DELETE "+root+"/consumers/{id}", a.answer(a.deleteConsumer))
	mux.Handle("GET "+root+"/resource-bundles", a.answer(a.listBundles))
	mux.Handle("GET "+root+"/resource-bundles/{id}", a.answer(a.getBundle))
	mux.Handle("DELETE "+root+"/resource-bundles/{id}", a.answer(a.deleteBundle))
	mux.Handle("/", a.answer(func(r *http.Request) (int, any, error) {
		return 0, nil, resource.Errorf(maestroapi.ReasonNotFound, "there is no %s %s", r.Method, r.URL.Path)
	}))
	return mux
}

// answer runs a handler and writes what it returns.
func (a *api) answer(handle func(*http.Request) (status int, body any, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		status, body, err := handle(r.WithContext(ctx))
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

// The published API's error codes.
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
		status, reason = http.StatusServiceUnavailable, "the database cannot be reached; try again"
	}
	operation := uuid.NewString()
	if status >= 500 {
		a.o.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "operationId", operation, "error", err)
	}
	id := strconv.Itoa(code)
	return status, failure{ID: id, Kind: "Error", Href: root + "/errors/" + id, Code: "maestro-" + id, Reason: reason, OperationID: operation}
}

// list is the published form of a page.
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

func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "the body cannot be read: %s", strings.TrimPrefix(fmt.Sprint(err), "json: "))
	}
	return nil
}
