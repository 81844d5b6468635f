// Package traffic writes down what clients and the ARM API say to each other, one exchange a line, in the form that oav's
// LiveValidator reads, so that what a test run really sent and got can be held against the OpenAPI documents. It is for
// tests. What is recorded holds no secrets: neither tokens nor credentials.
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

// DirVariable is the environment variable that names the folder to record into; without it nothing is recorded.
const DirVariable = "HCPMESH_TRAFFIC_DIR"

// Recorder writes exchanges to a file of its own. One that is nil records nothing.
type Recorder struct {
	dir, source string

	mu sync.Mutex
	// file is there once something was recorded.
	file *os.File
	// seen are the exchanges that are recorded: who polls says the same again and again.
	seen map[[sha256.Size]byte]bool
	// failed is the first error of a write.
	failed error
}

// FromEnvironment opens a recorder for the folder that the environment names; nil if it names none.
func FromEnvironment(source string) (*Recorder, error) {
	dir := os.Getenv(DirVariable)
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", DirVariable, err)
	}
	return &Recorder{dir: dir, source: source, seen: map[[sha256.Size]byte]bool{}}, nil
}

// Close ends the recording. Its error is that of the first write that went wrong, if one did.
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

// Through is a transport that records what passes through it to base.
func (r *Recorder) Through(base http.RoundTripper) http.RoundTripper {
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
	if !ofProvider(request.URL.Path) {
		return t.base.RoundTrip(request)
	}
	sent, err := take(&request.Body)
	if err != nil {
		return nil, err
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	got, err := take(&response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the response to record it: %w", err)
	}
	t.recorder.record(request, sent, response, got)
	return response, nil
}

// Handler is a server that records what next is asked and answers.
func (r *Recorder) Handler(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !ofProvider(request.URL.Path) {
			next.ServeHTTP(w, request)
			return
		}
		sent, err := take(&request.Body)
		if err != nil { // the caller is gone
			panic(http.ErrAbortHandler)
		}
		tee := &tee{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(tee, request)
		r.record(request, sent, &http.Response{StatusCode: tee.status, Header: w.Header()}, tee.body.Bytes())
	})
}

// tee keeps what is written.
type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (t *tee) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(content []byte) (int, error) {
	t.body.Write(content)
	return t.ResponseWriter.Write(content)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// ofProvider reports whether a path is one of the resource provider's; what ARM answers itself is no business of ours, and
// holds tokens.
func ofProvider(path string) bool {
	return strings.Contains(strings.ToLower(path), "/providers/microsoft.redhatopenshift/")
}

// take reads a body and puts what it read in its place.
func take(body *io.ReadCloser) ([]byte, error) {
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

// Exchange is a request with its response, as oav reads it.
type Exchange struct {
	Request  Request  `json:"liveRequest"`
	Response Response `json:"liveResponse"`
}

// Request is what was sent.
type Request struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body,omitempty"`
}

// Response is what came back.
type Response struct {
	StatusCode string            `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       any               `json:"body,omitempty"`
}

func (r *Recorder) record(request *http.Request, sent []byte, response *http.Response, got []byte) {
	exchange := Exchange{
		Request: Request{
			Method: request.Method, URL: "https://management.azure.com" + request.URL.RequestURI(),
			Headers: headers(request.Header), Body: content(sent),
		},
		Response: Response{StatusCode: strconv.Itoa(response.StatusCode), Headers: headers(response.Header), Body: content(got)},
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %d %q %q", request.Method, request.URL.RequestURI(), response.StatusCode, sent, got)
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
			return fmt.Errorf("recording: %w", err)
		}
	}
	_, err = r.file.Write(append(line, '\n'))
	return err
}

// headers are those of a message, but the one that proves who sent it.
func headers(all http.Header) map[string]string {
	kept := map[string]string{}
	for name, values := range all {
		if name != "Authorization" {
			kept[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	return kept
}

// content is a body as JSON without secrets; as text when it is not JSON, nil when it is empty.
func content(body []byte) any {
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return strings.ToValidUTF8(string(body), "\uFFFD")
	}
	return withoutSecrets(value)
}

func withoutSecrets(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if _, text := inner.(string); text && strings.EqualFold(name, "kubeconfig") {
				value[name] = "left out"
				continue
			}
			value[name] = withoutSecrets(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = withoutSecrets(inner)
		}
	}
	return value
}
