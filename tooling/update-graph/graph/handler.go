// Package graph serves a catalogue of releases as update graphs, the way OpenShift's update service does (the Cincinnati
// protocol): GET /api/upgrades_info/v1/graph answers with the releases of a channel that an architecture has a payload of,
// and the ways between them. A handler answers from one catalogue, which is replaced as a whole when its file changes; it
// keeps nothing of who asks.
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

// Handler serves the graphs of the newest catalogue it was given.
type Handler struct {
	catalogue atomic.Pointer[release.Catalog]
	mux       *http.ServeMux
	requests  *prometheus.CounterVec
}

// paths are where the graph is served: under the protocol's version and, as OpenShift's service has it, without one.
var paths = []string{"/api/upgrades_info/v1/graph", "/api/upgrades_info/graph"}

// New makes a handler that counts its answers in metrics.
func New(catalogue *release.Catalog, metrics prometheus.Registerer) *Handler {
	h := &Handler{mux: http.NewServeMux(), requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "update_graph", Name: "requests_total", Help: "Requests for a graph, by the answer's status.",
	}, []string{"code"})}
	metrics.MustRegister(h.requests)
	h.Replace(catalogue)
	for _, path := range paths {
		h.mux.HandleFunc("GET "+path, h.graph)
	}
	return h
}

// Replace has it answer from another catalogue.
func (h *Handler) Replace(catalogue *release.Catalog) { h.catalogue.Store(catalogue) }

// ServeHTTP serves the protocol.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// The kinds of what is wrong with a request.
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

// graph answers GET …/graph?channel=…[&arch=…][&version=…][&id=…].
func (h *Handler) graph(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	channel, arch := query.Get("channel"), query.Get("arch")
	if arch == "" {
		arch = "amd64"
	}
	// Version and id say who asks; the graph is everybody's.
	version, id := query.Get("version"), query.Get("id")
	switch {
	case !acceptsJSON(r.Header.Values("Accept")):
		h.refuse(w, http.StatusNotAcceptable, invalidContentType, "invalid Content-Type requested")
	case channel == "":
		h.refuse(w, http.StatusBadRequest, missingParams, "mandatory client parameters missing: channel")
	case !channelPattern.MatchString(channel):
		h.refuse(w, http.StatusBadRequest, invalidParams, "invalid client parameters: channel")
	case !slices.Contains(release.Architectures, arch):
		h.refuse(w, http.StatusBadRequest, invalidParams, "invalid client parameters: arch")
	case version != "" && !versionPattern.MatchString(version):
		h.refuse(w, http.StatusBadRequest, invalidParams, "invalid client parameters: version")
	case id != "" && !uuidPattern.MatchString(id):
		h.refuse(w, http.StatusBadRequest, invalidParams, "invalid client parameters: id")
	default:
		h.answer(w, r, h.catalogue.Load().Graph(channel, arch))
	}
}

// answer sends a graph, or that it has not changed.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, g *release.Graph) {
	body, err := json.Marshal(g)
	if err != nil { // a graph is text and numbers
		h.refuse(w, http.StatusInternalServerError, "internal", "the graph cannot be encoded")
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

func (h *Handler) refuse(w http.ResponseWriter, status int, kind, value string) {
	h.count(status)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": value})
}

func (h *Handler) count(status int) { h.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

// acceptsJSON says whether a client takes the protocol's one media type; one that says nothing takes anything.
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
