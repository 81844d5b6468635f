// Package graph serves a release catalogue as update graphs, with the Cincinnati protocol of OpenShift's update service: GET
// /api/upgrades_info/v1/graph returns the releases of a channel that have a payload for an architecture, and the upgrade edges
// between them. A Handler serves one catalogue, which is replaced as a whole when its file changes. It stores nothing about
// its clients. Main is the program update-graph.
package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Handler serves the graphs of a catalogue. It is safe for concurrent use.
type Handler struct {
	catalogue atomic.Pointer[release.Catalog]
	mux       *http.ServeMux
	requests  *prometheus.CounterVec
}

// paths are the paths of the graph, with and without the protocol's version, as in OpenShift's service.
var paths = []string{"/api/upgrades_info/v1/graph", "/api/upgrades_info/graph"}

// New returns a handler that counts its responses in metrics.
func New(catalogue *release.Catalog, metrics prometheus.Registerer) *Handler {
	h := &Handler{mux: http.NewServeMux(), requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "update_graph", Name: "requests_total", Help: "Requests for a graph, by HTTP status.",
	}, []string{"code"})}
	metrics.MustRegister(h.requests)
	h.Replace(catalogue)
	for _, path := range paths {
		h.mux.HandleFunc("GET "+path, h.graph)
	}
	return h
}

// Replace replaces the catalogue.
func (h *Handler) Replace(catalogue *release.Catalog) { h.catalogue.Store(catalogue) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Kinds of errors of the protocol.
const (
	invalidContentType = "invalid_content_type"
	missingParams      = "missing_params"
	invalidParams      = "invalid_params"
)

var (
	channelPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]{1,64})?$`)
	uuidPattern    = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// graph handles GET …/graph?channel=…[&arch=…][&version=…][&id=…].
func (h *Handler) graph(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	channel, arch := query.Get("channel"), query.Get("arch")
	if arch == "" {
		arch = "amd64"
	}
	// Version and id identify the client. They are validated, and the graph does not depend on them.
	version, id := query.Get("version"), query.Get("id")
	switch {
	case !acceptsJSON(r.Header.Values("Accept")):
		h.reject(w, http.StatusNotAcceptable, invalidContentType, "invalid Content-Type requested")
	case channel == "":
		h.reject(w, http.StatusBadRequest, missingParams, "mandatory client parameters missing: channel")
	case !channelPattern.MatchString(channel):
		h.reject(w, http.StatusBadRequest, invalidParams, "invalid client parameters: channel")
	case !slices.Contains(release.Architectures, arch):
		h.reject(w, http.StatusBadRequest, invalidParams, "invalid client parameters: arch")
	case version != "" && !versionPattern.MatchString(version):
		h.reject(w, http.StatusBadRequest, invalidParams, "invalid client parameters: version")
	case id != "" && !uuidPattern.MatchString(id):
		h.reject(w, http.StatusBadRequest, invalidParams, "invalid client parameters: id")
	default:
		h.send(w, r, h.catalogue.Load().Graph(channel, arch))
	}
}

// send returns a graph, or 304 if the client has it.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, g *release.Graph) {
	body, err := json.Marshal(g)
	if err != nil { // never happens: a graph has only text and numbers
		h.reject(w, http.StatusInternalServerError, "internal", "the graph cannot be encoded")
		return
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "max-age=60")
	if slices.Contains(strings.Split(strings.ReplaceAll(r.Header.Get("If-None-Match"), " ", ""), ","), tag) {
		h.count(http.StatusNotModified)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.count(http.StatusOK)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (h *Handler) reject(w http.ResponseWriter, status int, kind, value string) {
	h.count(status)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": value})
}

func (h *Handler) count(status int) { h.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

// acceptsJSON reports whether a client accepts JSON, the only media type of the protocol. Without Accept it accepts everything.
func acceptsJSON(accept []string) bool {
	if len(accept) == 0 {
		return true
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, parameters, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err == nil && slices.Contains([]string{"application/json", "application/*", "*/*"}, media) && parameters["q"] != "0" {
			return true
		}
	}
	return false
}
