package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// audit writes one record for every request that was to change something: who, what, and with which result; nothing of
// what was sent or answered. It is written when the request is over, also when it was refused or failed.
func audit(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	if !rq.audited() {
		next(ctx)
		return
	}
	defer func() { s.Audit.LogAttrs(ctx, slog.LevelInfo, "audit", rq.auditRecord()...) }()
	next(ctx)
}

// audited: every request that is not a read, but for those that only judge.
func (rq *request) audited() bool {
	switch rq.http.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return rq.match.route == nil || rq.match.route.versioning != deploymentVersion
}

func (rq *request) auditRecord() []slog.Attr {
	header := rq.http.Header
	status := rq.outcome()
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
		slog.String("record", "audit"),
		slog.String("action", rq.action()),
		slog.String("target", shortened(target)),
		slog.Group("caller",
			slog.String("tenant_id", shortened(rq.tenantID)), slog.String("client_tenant_id", shortened(rq.clientTenantID)), slog.String("object_id", shortened(rq.clientID)),
			slog.String("app_id", shortened(header.Get(armheader.ClientAppID))),
			slog.String("name", shortened(header.Get(armheader.ClientPrincipalName)))),
		slog.Group("sender", slog.String("tenant_id", rq.sender.TenantID), slog.String("app_id", rq.sender.AppID), slog.String("object_id", rq.sender.ObjectID)),
		slog.String("result", result), slog.Int("status", status), slog.String("error_code", code),
		slog.String("operation_id", rq.operationID), slog.String("api_version", rq.apiVersion()),
		slog.String("request_id", rq.requestID), slog.String("correlation_id", rq.correlationID),
	}
}

// action is what was asked for, by the names of ARM's operations list.
func (rq *request) action() string {
	verb := map[string]string{http.MethodPut: "write", http.MethodPatch: "write", http.MethodDelete: "delete", http.MethodPost: "action"}[rq.http.Method]
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
