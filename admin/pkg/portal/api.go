package portal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// maxAPIResponse bounds a response of admin's API that a page shows, in bytes.
const maxAPIResponse = 16 << 20

// apiCall calls admin's API in process with the token of a person. admin authenticates, authorizes and audits it as every other request: the
// portal has no rights of its own.
type apiCall struct {
	ctx     context.Context
	handler http.Handler
	token   string
	remote  string
	// challenged receives the claims that admin requires for a request, if the token lacks them.
	challenged *atomic.Pointer[string]
}

// api returns the calls for a request of a browser.
func (p *Portal) api(r *http.Request, token string) apiCall {
	return apiCall{ctx: r.Context(), handler: p.API, token: token, remote: r.RemoteAddr, challenged: &atomic.Pointer[string]{}}
}

// apiError is an error response of admin's API.
type apiError struct {
	status int
	detail adminv1.FailureDetail
}

// Error returns the message for people.
func (e *apiError) Error() string { return e.detail.Message }

// get reads the response of a path below adminv1.Root into a value.
func (c apiCall) get(path string, query url.Values, into any) error {
	return c.do(http.MethodGet, path, query, nil, "", into)
}

// send sends a body with an idempotency key and reads the response into a value. A nil body sends none.
func (c apiCall) send(method, path string, body any, key string, into any) error {
	return c.do(method, path, nil, body, key, into)
}

// errAborted is the error of a response that admin has ended before it was complete.
var errAborted = errors.New("the response is not complete")

// read writes the response of a path below adminv1.Root, which is not JSON, to w. After errAborted, w has the part before the end.
func (c apiCall) read(path string, w io.Writer) (err error) {
	request, err := c.request(http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	response := &apiResponse{header: http.Header{}, content: w}
	defer func() {
		switch reason := recover(); reason {
		case nil:
		case http.ErrAbortHandler:
			err = errAborted
		default:
			panic(reason)
		}
	}()
	c.handler.ServeHTTP(response, request)
	if response.status >= 400 {
		return c.failure(response)
	}
	return nil
}

// request returns a request to a path below adminv1.Root with the token of the person.
func (c apiCall) request(method, path string, query url.Values, content []byte) (*http.Request, error) {
	target := adminv1.Root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(c.ctx, method, "https://admin"+target, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.RequestURI, request.RemoteAddr = target, c.remote
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("User-Agent", "hcpmesh-portal")
	return request, nil
}

// failure returns the error of an error response, and keeps the claims that admin requires.
func (c apiCall) failure(response *apiResponse) error {
	failure := adminv1.Failure{Error: adminv1.FailureDetail{Message: fmt.Sprintf("The request failed with status %d.", response.status)}}
	_ = json.Unmarshal(response.body.Bytes(), &failure) // a response without JSON keeps the message
	if claims := authn.RequestedClaims(response.header.Get("WWW-Authenticate")); claims != "" {
		c.challenged.Store(&claims)
	}
	return &apiError{status: response.status, detail: failure.Error}
}

func (c apiCall) do(method, path string, query url.Values, body any, key string, into any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := c.request(method, path, query, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set(adminv1.IdempotencyKey, key)
	}
	response := &apiResponse{header: http.Header{}}
	c.handler.ServeHTTP(response, request)
	switch {
	case response.overflow:
		return fmt.Errorf("%s %s: the response is larger than %d bytes", method, path, maxAPIResponse)
	case response.status >= 400:
		return c.failure(response)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(response.body.Bytes(), into); err != nil {
		return fmt.Errorf("%s %s: reading the response: %w", method, path, err)
	}
	return nil
}

// apiResponse stores the response of an in-process call.
type apiResponse struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	overflow bool
	// content gets the content of a successful response instead of body; nil for none.
	content io.Writer
}

// Header implements http.ResponseWriter.
func (r *apiResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *apiResponse) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *apiResponse) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.content != nil && r.status < 400 {
		return r.content.Write(data)
	}
	if r.body.Len()+len(data) > maxAPIResponse {
		r.overflow = true
		return 0, io.ErrShortBuffer
	}
	return r.body.Write(data)
}

// isStatus reports whether err is an error response with a status.
func isStatus(err error, status int) bool {
	var failure *apiError
	return errors.As(err, &failure) && failure.status == status
}
