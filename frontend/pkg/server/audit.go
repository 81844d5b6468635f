package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// logAudit logs one audit record for every request for a change: the calling workload, the caller, the action, the target and
// the result. The record contains nothing of the request's or the response's body. It is written when the request ends, also
// for rejected and failed requests.
func logAudit(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	if !rq.audited() {
		next(ctx)
		return
	}
	defer func() { s.Audit.LogAttrs(ctx, slog.LevelInfo, "audit", rq.auditRecord()...) }()
	next(ctx)
}

// recordRefusal stores an audit record of a request whose sender was not authenticated or not permitted. What such a request says about
// its customer is not proven, so that the record names only the workload in the sender's certificate.
func recordRefusal(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	next(ctx)
	status := rq.responseStatus()
	if s.Refused == nil || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return
	}
	s.Refused(ctx, audit.Record{Peer: mesh.ClientName(rq.http.Context()), Action: rq.action(), Object: audit.Object{ID: truncated(rq.http.URL.Path)},
		Outcome: audit.Refused, Code: rq.w.Header().Get(armheader.ErrorCode), Request: rq.requestID, Trace: tracing.ReferenceTo(rq.span)})
}

// audited reports whether the request needs an audit record. Reads and preflights change nothing and have none.
func (rq *request) audited() bool {
	switch rq.http.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return rq.match.route == nil || !rq.match.route.preflights
}

func (rq *request) auditRecord() []slog.Attr {
	header := rq.http.Header
	status := rq.responseStatus()
	result, code := "Success", ""
	if status >= http.StatusBadRequest {
		result = "Failure"
		code = rq.w.Header().Get(armheader.ErrorCode)
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		result = "Denied"
	}
	target := rq.resourceID
	if target == "" {
		target = rq.http.URL.Path
	}
	return []slog.Attr{
		slog.String(logkey.Record, "audit"), slog.String(logkey.Client, mesh.ClientName(rq.http.Context())),
		slog.String(logkey.Action, rq.action()),
		slog.String(logkey.Target, truncated(target)),
		slog.Group(logkey.Caller,
			slog.String(logkey.TenantID, truncated(rq.tenantID)), slog.String(logkey.ClientTenantID, truncated(rq.clientTenantID)), slog.String(logkey.ObjectID, truncated(rq.clientID)),
			slog.String(logkey.AppID, truncated(header.Get(armheader.ClientAppID))),
			slog.String(logkey.Name, truncated(header.Get(armheader.ClientPrincipalName)))),
		slog.Group(logkey.Sender, slog.String(logkey.TenantID, rq.sender.TenantID), slog.String(logkey.AppID, rq.sender.AppID), slog.String(logkey.ObjectID, rq.sender.ObjectID)),
		slog.String(logkey.Result, result), slog.Int(logkey.Status, status), slog.String(logkey.ErrorCode, code),
		slog.String(logkey.OperationID, rq.operationID), slog.String(logkey.APIVersion, rq.apiVersion()),
		slog.String(logkey.RequestID, rq.requestID), slog.String(logkey.CorrelationID, rq.correlationID),
	}
}

// action returns the requested action with its name in ARM's operations list.
func (rq *request) action() string {
	verb := map[string]string{http.MethodGet: "read", http.MethodHead: "read", http.MethodPut: "write", http.MethodPatch: "write", http.MethodDelete: "delete", http.MethodPost: "action"}[rq.http.Method]
	if verb == "" {
		verb = "other"
	}
	if rq.match.route == nil {
		return verb
	}
	var words []string
	for i, part := range rq.match.route.parts {
		if rq.match.route.params[i] < 0 {
			words = append(words, part)
		}
	}
	name := strings.Join(words, "/")
	if i := strings.Index(name, hub.ProviderNamespace); i >= 0 {
		return name[i:] + "/" + verb
	}
	return "Microsoft.Resources/" + name + "/" + verb
}
