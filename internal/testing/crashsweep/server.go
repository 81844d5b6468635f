package crashsweep

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Server is an HTTP service that runs inside the test, for scenarios that send one request after the other. It is not safe
// for concurrent use.
type Server struct {
	injector *Injector
	start    func() (handler http.Handler, stop func())
	handler  http.Handler
	stop     func()
}

// StartServer starts the first instance of a service and stops the last one when the test ends. start is called for each
// instance; stop must wait for all goroutines of the instance and is called once.
func StartServer(t testing.TB, injector *Injector, start func() (handler http.Handler, stop func())) *Server {
	s := &Server{injector: injector, start: start}
	s.handler, s.stop = start()
	t.Cleanup(func() { s.stop() })
	return s
}

// Send sends a request as a client that retries requests without a response: while the instance crashes before it
// responds, Send replaces the instance and sends the request that newRequest returns next. retried reports whether the
// response is that of a retry.
func (s *Server) Send(newRequest func() *http.Request) (response *httptest.ResponseRecorder, retried bool) {
	for ; ; retried = true {
		s.ReplaceCrashed()
		response = httptest.NewRecorder()
		s.injector.Handler(s.handler).ServeHTTP(response, newRequest())
		if !s.injector.Crashed() {
			return response, retried
		}
	}
}

// ReplaceCrashed replaces the instance if it has crashed.
func (s *Server) ReplaceCrashed() {
	if s.injector.Crashed() {
		s.stop()
		s.injector.Restart()
		s.handler, s.stop = s.start()
	}
}
