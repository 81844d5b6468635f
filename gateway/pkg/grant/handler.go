package grant

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The outcomes of requests for tokens in the metric.
const (
	outcomeIssued  = "issued"
	outcomeRefused = "refused"
	outcomeFailed  = "failed"
)

// Handler serves requests for tokens. The body of a request is a Request, and that of the response is a Grant. If the Granter returns an error, the status is that
// of the error and the body is its message.
type Handler struct {
	granter Granter
	kind    string
	log     *slog.Logger
	grants  *prometheus.CounterVec
}

// NewHandler returns a Handler for a cluster. It counts requests in grants, which has the label outcome: issued, refused or failed.
func NewHandler(granter Granter, cluster Cluster, log *slog.Logger, grants *prometheus.CounterVec) *Handler {
	for _, outcome := range []string{outcomeIssued, outcomeRefused, outcomeFailed} {
		grants.WithLabelValues(outcome)
	}
	return &Handler{granter: granter, kind: cluster.Kind, log: log, grants: grants}
}

// decodeRequest decodes the body of a request for a token. It refuses fields that are given twice, also in the parameters of the session: the digest of the
// intent has only one of the values.
func decodeRequest(body io.Reader) (request Request, err error) {
	content, err := io.ReadAll(body)
	if err == nil {
		err = wire.Unmarshal(content, &request)
	}
	return request, err
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := decodeRequest(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		message := "The body is not a request for a token."
		if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) {
			message = duplicate.Error()
		}
		http.Error(w, message, http.StatusBadRequest)
		return
	}
	issued, asked, err := h.granter.Grant(r.Context(), request)
	if err != nil {
		e, outcome := apierror.As(err), outcomeFailed
		if e.Kind == apierror.PermissionDenied || e.Kind == apierror.Invalid {
			outcome = outcomeRefused
		}
		h.grants.WithLabelValues(outcome).Inc()
		h.log.WarnContext(r.Context(), "no token was issued for the "+h.kind, logkey.Outcome, outcome, logkey.Error, err)
		http.Error(w, e.Message, e.Kind.HTTPStatus())
		return
	}
	h.grants.WithLabelValues(outcomeIssued).Inc()
	h.log.InfoContext(r.Context(), "a token was issued for the "+h.kind, logkey.OperationID, asked.OperationID, logkey.Actor, asked.Engineer(), logkey.ObjectID, asked.ObjectID,
		logkey.Reason, asked.Reason, logkey.Ticket, asked.Ticket)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(issued) // the gateway repeats the request if it does not get the response
}
