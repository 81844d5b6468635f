// Package registry is a registry of container images. A Server has the protocol of the OCI distribution specification 1.1: pull, push, content
// discovery by tag, and referrers. A Store keeps the content in a folder: blobs and manifests by digest, and for each repository its manifests,
// tags and referrers.
//
//	blobs/sha256/HEX                             content of blobs and manifests
//	uploads/ID                                   content of uploads in progress
//	repositories/NAME/_manifests/HEX             media type of a manifest
//	repositories/NAME/_tags/TAG                  digest of a manifest
//	repositories/NAME/_referrers/HEX/HEX         descriptor of a manifest, below the digest of its subject
//
// Every file has its name only when it is complete and on disk. A blob is stored only if its content has its digest, and a manifest only if
// everything to which it refers is stored. After a crash, the store has all content that it confirmed; uploads in progress are lost. Blobs
// belong to all repositories. The content of a blob is never in memory as a whole; manifests are limited.
package registry

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// stalled is the time after which a transfer without progress ends, and minimumRate is the lowest rate of a download in bytes per second.
const (
	stalled     = time.Minute
	minimumRate = 64 << 10
)

// digestHeader is the header with the digest of the content.
const digestHeader = "Docker-Content-Digest"

// Server is the handler of a registry.
type Server struct {
	store    *Store
	policy   Policy
	log      *slog.Logger
	requests *prometheus.CounterVec
}

// New returns a handler.
func New(s *Store, policy Policy, log *slog.Logger, metrics prometheus.Registerer) *Server {
	server := &Server{store: s, policy: policy, log: log, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "registry_requests_total", Help: "Requests by method and HTTP status."}, []string{"method", "code"})}
	metrics.MustRegister(server.requests)
	return server
}

// failure is the response to a request that is not fulfilled.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.message }

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
	err := s.serve(recorder, r)
	if err != nil {
		s.fail(recorder, r, err)
	}
	method := r.Method
	if routes[method] == nil {
		method = "other"
	}
	s.requests.WithLabelValues(method, strconv.Itoa(recorder.status)).Inc()
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	status  int
	started bool
}

func (r *recorder) WriteHeader(status int) {
	r.status, r.started = status, true
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.started = true
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController set deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// route is one endpoint of the protocol. target is the last element of the path.
type route func(s *Server, w http.ResponseWriter, r *http.Request, repository, target string) error

// The routes by method and by the part of the path between the repository and the target.
var routes = map[string]map[string]route{
	http.MethodGet: {"manifests": (*Server).getManifest, "blobs": (*Server).getBlob, "blobs/uploads": (*Server).getUpload,
		"tags": (*Server).listTags, "referrers": (*Server).listReferrers},
	http.MethodHead:   {"manifests": (*Server).getManifest, "blobs": (*Server).getBlob},
	http.MethodPost:   {"blobs/uploads": (*Server).beginUpload},
	http.MethodPatch:  {"blobs/uploads": (*Server).appendUpload},
	http.MethodPut:    {"blobs/uploads": (*Server).commitUpload, "manifests": (*Server).putManifest},
	http.MethodDelete: {"blobs/uploads": (*Server).cancelUpload},
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	switch s.policy.Decide(r) {
	case Unauthenticated:
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		return &failure{http.StatusUnauthorized, "UNAUTHORIZED", "other credentials are required"}
	case Denied:
		return &failure{http.StatusForbidden, "DENIED", "the registry cannot be written with these credentials"}
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if !ok {
		return &failure{http.StatusNotFound, "UNSUPPORTED", "the path does not begin with /v2/"}
	}
	if path == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
		return nil
	}
	repository, kind, target := split(path)
	if err := CheckRepository(repository); err != nil {
		return err
	}
	endpoint := routes[r.Method][kind]
	if endpoint == nil || (kind != "blobs/uploads" && target == "") {
		return &failure{http.StatusMethodNotAllowed, "UNSUPPORTED", "the registry does not support this request"}
	}
	return endpoint(s, w, r, repository, target)
}

// split divides a path into repository, kind and target. Names of repositories can contain the names of kinds, so the last ones count.
func split(path string) (repository, kind, target string) {
	if before, after, found := cutLast(path, "/blobs/uploads/"); found {
		return before, "blobs/uploads", after
	}
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		return path, "", ""
	}
	n := len(parts)
	return strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// fail writes the response to a request that is not fulfilled.
func (s *Server) fail(w *recorder, r *http.Request, err error) {
	f := classify(err)
	if f.status >= http.StatusInternalServerError {
		s.log.Error("request failed", logkey.Method, r.Method, logkey.Path, r.URL.Path, logkey.Error, err.Error())
	}
	if w.started {
		panic(http.ErrAbortHandler) // the client must not believe that the content is complete
	}
	type entry struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(map[string][]entry{"errors": {{f.code, f.message}}})
	}
}

// classify returns the response to an error.
func classify(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{syscall.ENOSPC, http.StatusInsufficientStorage, "UNKNOWN"},
		{ErrReference, http.StatusNotFound, "MANIFEST_BLOB_UNKNOWN"},
		{ErrManifest, http.StatusBadRequest, "MANIFEST_INVALID"},
		{ErrDigest, http.StatusBadRequest, "DIGEST_INVALID"},
		{ErrName, http.StatusBadRequest, "NAME_INVALID"},
		{ErrRange, http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID"},
		{ErrUploads, http.StatusTooManyRequests, "TOOMANYREQUESTS"},
		{ErrNotFound, http.StatusNotFound, "UNKNOWN"},
	} {
		if errors.Is(err, c.err) {
			message := err.Error()
			if c.status == http.StatusInsufficientStorage {
				message = "the disk of the registry is full" // the error has a path
			}
			return &failure{c.status, c.code, message}
		}
	}
	return &failure{http.StatusInternalServerError, "UNKNOWN", "the registry could not read or write its content"}
}
