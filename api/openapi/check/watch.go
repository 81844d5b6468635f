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

// route is where an operation is addressed.
type route struct {
	method      string
	path        *regexp.Regexp
	operationID string
}

var pathParameter = regexp.MustCompile(`\\\{[^}]+\\\}`)

// newRoute makes a route of a path with a {name} for each parameter in it. ARM matches paths whatever their case.
func newRoute(method, template, operationID string) route {
	pattern := pathParameter.ReplaceAllString(regexp.QuoteMeta(template), "[^/]+")
	return route{strings.ToUpper(method), regexp.MustCompile("(?i)^" + pattern + "/?$"), operationID}
}

// Match finds the operation that a request is addressed to; none for what the contract does not have.
func (c *Contract) Match(method, path string) (operationID string, ok bool) {
	for _, route := range c.routes {
		if route.method == method && route.path.MatchString(path) {
			return route.operationID, true
		}
	}
	return "", false
}

// Watch judges every answer of a handler to a request that the contract has, whatever its api-version, and tells report of
// each departure. Requests are not judged: a service may take more than the contract says, but must not say more. The
// report may be called from several goroutines at once.
func Watch(next http.Handler, report func(error)) http.Handler {
	contracts := map[string]func() (*Contract, error){} // read when they are first needed
	for _, version := range openapi.Versions() {
		contracts[version] = sync.OnceValues(func() (*Contract, error) { return New(version) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		load, ok := contracts[r.URL.Query().Get("api-version")]
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
		method, path := r.Method, r.URL.Path // a handler may change its request
		answer := &answerWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		if err := contract.Response(operationID, answer.status, w.Header(), answer.body.Bytes()); err != nil {
			report(fmt.Errorf("%s %s: %w", method, path, err))
		}
	})
}

// answerWriter keeps what is answered.
type answerWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *answerWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(content []byte) (int, error) {
	w.body.Write(content)
	return w.ResponseWriter.Write(content)
}

// Unwrap lets http.ResponseController reach what the writer wraps.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
