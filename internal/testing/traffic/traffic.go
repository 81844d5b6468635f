// Package traffic records the HTTP exchanges between clients and the ARM API during tests, one per line in the format of oav's
// LiveValidator, so that real traffic can be validated against the OpenAPI documents. Recordings contain neither tokens nor
// credentials.
package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

// DirVariable is the environment variable with the folder for recordings. If it is empty, nothing is recorded.
const DirVariable = "HCPMESH_TRAFFIC_DIR"

// Recorder writes exchanges to its own file. A nil Recorder records nothing. It is safe for concurrent use.
type Recorder struct {
	dir, source string

	mu sync.Mutex
	// file is created for the first exchange.
	file *os.File
	// seen holds the hashes of recorded exchanges, because polling clients repeat the same exchange.
	seen map[[sha256.Size]byte]bool
	// failed is the first error of a write.
	failed error
}

// FromEnvironment returns a Recorder for the folder in DirVariable, or nil if the variable is empty. source is the prefix
// of the recording's file name.
func FromEnvironment(source string) (*Recorder, error) {
	dir := os.Getenv(DirVariable)
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the folder of %s: %w", DirVariable, err)
	}
	return &Recorder{dir: dir, source: source, seen: map[[sha256.Size]byte]bool{}}, nil
}

// Close closes the recording's file. It returns the error of the first failed write.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return r.failed
	}
	if err := r.file.Close(); r.failed == nil {
		r.failed = err
	}
	return r.failed
}

// Transport returns a transport that records the exchanges of base.
func (r *Recorder) Transport(base http.RoundTripper) http.RoundTripper {
	if r == nil {
		return base
	}
	return transport{recorder: r, base: base}
}

type transport struct {
	recorder *Recorder
	base     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isProviderPath(request.URL.Path) {
		return t.base.RoundTrip(request)
	}
	requestBody, err := readBody(&request.Body)
	if err != nil {
		return nil, err
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	responseBody, err := readBody(&response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the response to record it: %w", err)
	}
	t.recorder.record(request, requestBody, response, responseBody)
	return response, nil
}

// Handler returns a handler that records the exchanges of next.
func (r *Recorder) Handler(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !isProviderPath(request.URL.Path) {
			next.ServeHTTP(w, request)
			return
		}
		requestBody, err := readBody(&request.Body)
		if err != nil { // the client has disconnected
			panic(http.ErrAbortHandler)
		}
		recorder := &responseRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, request)
		r.record(request, requestBody, &http.Response{StatusCode: recorder.status, Header: w.Header()}, recorder.body.Bytes())
	})
}

// responseRecorder copies the status and the body of a response.
type responseRecorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *responseRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(content []byte) (int, error) {
	r.body.Write(content)
	return r.ResponseWriter.Write(content)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// isProviderPath reports whether the resource provider serves a path. The other responses of ARM are not recorded: they
// contain tokens.
func isProviderPath(path string) bool {
	return strings.Contains(strings.ToLower(path), "/providers/microsoft.redhatopenshift/")
}

// readBody reads a body and replaces it by its content.
func readBody(body *io.ReadCloser) ([]byte, error) {
	if *body == nil {
		return nil, nil
	}
	content, err := io.ReadAll(*body)
	if closeErr := (*body).Close(); err == nil {
		err = closeErr
	}
	*body = io.NopCloser(bytes.NewReader(content))
	return content, err
}

// Exchange is a request with its response, in the format of oav.
type Exchange struct {
	Request  Request  `json:"liveRequest"`
	Response Response `json:"liveResponse"`
}

// Request is the request of an Exchange.
type Request struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body,omitempty"`
}

// Response is the response of an Exchange.
type Response struct {
	StatusCode string            `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       any               `json:"body,omitempty"`
}

// record writes an exchange that was not recorded before.
func (r *Recorder) record(request *http.Request, requestBody []byte, response *http.Response, responseBody []byte) {
	exchange := Exchange{
		Request: Request{
			Method: request.Method, URL: "https://management.azure.com" + request.URL.RequestURI(),
			Headers: headerMap(request.Header), Body: bodyValue(requestBody),
		},
		Response: Response{StatusCode: strconv.Itoa(response.StatusCode), Headers: headerMap(response.Header), Body: bodyValue(responseBody)},
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %d %q %q", request.Method, request.URL.RequestURI(), response.StatusCode, requestBody, responseBody)
	key := [sha256.Size]byte(hash.Sum(nil))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	if err := r.write(exchange); r.failed == nil {
		r.failed = err
	}
}

func (r *Recorder) write(exchange Exchange) error {
	line, err := json.Marshal(exchange)
	if err != nil {
		return err
	}
	if r.file == nil {
		if r.file, err = os.CreateTemp(r.dir, r.source+"-*.jsonl"); err != nil {
			return fmt.Errorf("creating the recording: %w", err)
		}
	}
	_, err = r.file.Write(append(line, '\n'))
	return err
}

// headerMap returns the headers of a message except for Authorization.
func headerMap(all http.Header) map[string]string {
	kept := map[string]string{}
	for name, values := range all {
		if name != "Authorization" {
			kept[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	return kept
}

// bodyValue returns a body without secrets: as JSON, as text if it is not JSON, or nil if it is empty.
func bodyValue(body []byte) any {
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return strings.ToValidUTF8(string(body), "\uFFFD")
	}
	return redact(value)
}

// redact replaces the kubeconfigs in value.
func redact(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if _, text := inner.(string); text && strings.EqualFold(name, "kubeconfig") {
				value[name] = "redacted"
				continue
			}
			value[name] = redact(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = redact(inner)
		}
	}
	return value
}
