package check

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/api/openapi"
)

// route maps a method and a path to an operation.
type route struct {
	method      string
	path        *regexp.Regexp
	operationID string
}

var pathParameter = regexp.MustCompile(`\\\{[^}]+\\\}`)

// newRoute returns the route of a path template with {name} for each parameter. ARM paths are case-insensitive.
func newRoute(method, template, operationID string) route {
	pattern := pathParameter.ReplaceAllString(regexp.QuoteMeta(template), "[^/]+")
	return route{strings.ToUpper(method), regexp.MustCompile("(?i)^" + pattern + "/?$"), operationID}
}

// Match returns the operation that a request addresses. ok is false if the contract has none.
func (c *Contract) Match(method, path string) (operationID string, ok bool) {
	for _, route := range c.routes {
		if route.method == method && route.path.MatchString(path) {
			return route.operationID, true
		}
	}
	return "", false
}

// Contracts has a function for each api-version that returns its contract. The first call compiles it, which takes a quarter of a second.
type Contracts map[string]func() (*Contract, error)

// NewContracts returns the contracts of all api-versions. They are safe for concurrent use.
func NewContracts() Contracts {
	contracts := Contracts{}
	for _, version := range openapi.Versions() {
		contracts[version] = sync.OnceValues(func() (*Contract, error) { return New(version) })
	}
	return contracts
}

// Watch returns a handler that validates every response of next to a request of the contract, at any api-version, and calls
// report for each violation. It does not validate requests: a service may accept more than the contract describes, but must
// not respond with more. Watch may call report from several goroutines at once.
func (c Contracts) Watch(next http.Handler, report func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		load, ok := c[r.URL.Query().Get("api-version")]
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		contract, err := load()
		if err != nil {
			report(err)
			next.ServeHTTP(w, r)
			return
		}
		operationID, ok := contract.Match(r.Method, r.URL.Path)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		method, path := r.Method, r.URL.Path // next may change its request
		recorder := &responseRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, r)
		if err := contract.Response(operationID, recorder.status, w.Header(), recorder.body.Bytes()); err != nil {
			report(fmt.Errorf("%s %s: %w", method, path, err))
		}
	})
}

// responseRecorder records status and body while it writes them.
type responseRecorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *responseRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseRecorder) Write(content []byte) (int, error) {
	w.body.Write(content)
	return w.ResponseWriter.Write(content)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *responseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
