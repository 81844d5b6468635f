package emulator

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
)

// The sub-statuses of rejected requests.
const (
	// Of 401: which part of a token is wrong, and that the account has no key.
	subStatusInvalidHeader      = 5001
	subStatusMalformedToken     = 5003
	subStatusInvalidSignature   = 5004
	subStatusTokenNotYetValid   = 5005
	subStatusTokenExpired       = 5006
	subStatusInvalidIssuer      = 5007
	subStatusInvalidAudience    = 5008
	subStatusNoObjectID         = 5011
	subStatusUnknownSigningKey  = 5200
	subStatusLocalAuthDisabled  = 5202
	subStatusNotInDataPlane     = 5300
	subStatusMetadataForbidden  = 5301
	subStatusDataNamedForbidden = 5302
)

// caller is the principal of an authenticated request.
type caller struct {
	// everything is set for the master key, which allows every request.
	everything bool
	// objectID and permissions are those of a principal of Entra ID.
	objectID    string
	permissions account.Permissions
}

// unauthorized returns an error with status 401.
func unauthorized(format string, args ...any) error {
	return &statusError{status: http.StatusUnauthorized, message: fmt.Sprintf(format, args...)}
}

// authenticate verifies the Authorization header and sets the caller of the request. The header has a signature with the master
// key or a token of Entra ID.
func (s *Server) authenticate(req *request) error {
	h := req.r.Header.Get("Authorization")
	if h == "" {
		return unauthorized("Required Header authorization is missing. Ensure a valid Authorization token is passed.")
	}
	if known, ok := s.tokens.cached(h, s.now()); ok {
		req.caller = known
		return nil
	}
	text := h
	if strings.Contains(h, "%") {
		decoded, err := url.QueryUnescape(h)
		if err != nil {
			return unauthorized("The authorization token is not properly escaped.")
		}
		text = decoded
	}
	var kind, version, sig string
	for _, field := range strings.SplitN(text, "&", 3) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "type":
			kind = value
		case "ver":
			version = value
		case "sig":
			sig = value
		}
	}
	if version != "1.0" || sig == "" {
		return &statusError{status: http.StatusUnauthorized, subStatus: subStatusInvalidHeader,
			message: "The authorization token has an invalid format: it requires type, ver=1.0 and sig."}
	}
	switch {
	case kind == "aad" && s.tokens != nil:
		return s.authenticateToken(req, h, sig)
	case kind != "master":
		return unauthorized("Authorization of the type %q is not supported: use a token or the master key.", kind)
	case s.opts.Key == "":
		return &statusError{status: http.StatusUnauthorized, subStatus: subStatusLocalAuthDisabled,
			message: "Local Authorization is disabled. Use an AAD token to authorize all requests."}
	}
	req.caller.everything = true
	return s.checkSignature(req, sig)
}

// authorize returns an error with status 403 unless the caller may execute the request. The operations of a batch are authorized
// one by one when its body is parsed; before that the caller needs some right on the container.
func (s *Server) authorize(req *request) error {
	if req.caller.everything {
		return nil
	}
	action := actionOf(req)
	if action == "" {
		return s.blocked(subStatusNotInDataPlane, "The given request [%s %s] cannot be authorized by AAD token in data plane.", req.r.Method, req.r.URL.EscapedPath())
	}
	if req.operation == "batch" && req.caller.permissions.Reach(scopeOf(req)) {
		return nil
	}
	return s.require(req, action)
}

// require returns an error unless the caller may execute an action on the request's resource.
func (s *Server) require(req *request, action account.Action) error {
	scope := scopeOf(req)
	if req.caller.everything || req.caller.permissions.Allow(action, scope) {
		return nil
	}
	subStatus := subStatusDataNamedForbidden
	if action == account.ReadMetadata {
		subStatus = subStatusMetadataForbidden
	}
	return s.blocked(subStatus, "Request is blocked because principal [%s] does not have required RBAC permissions to perform action [%s] on resource [%s].",
		req.caller.objectID, action, scope)
}

// blocked returns an error with status 403.
func (s *Server) blocked(subStatus int, format string, args ...any) error {
	return &statusError{status: http.StatusForbidden, subStatus: subStatus, message: "Request blocked by Auth " + s.opts.Account.Name + " : " +
		fmt.Sprintf(format, args...) + " Learn more: https://aka.ms/cosmos-native-rbac."}
}

// itemActions maps the operations on items to data actions.
var itemActions = map[string]account.Action{
	"create": account.CreateItem, "read": account.ReadItem, "replace": account.ReplaceItem, "upsert": account.UpsertItem, "delete": account.DeleteItem,
	"query": account.ExecuteQuery, "changefeed": account.ReadChangeFeed,
}

// actionOf returns the data action that a request needs. It is empty if tokens cannot authorize the request at all: they do not
// change databases and containers, and unsupported operations have no action. For a batch it is that of a creation.
func actionOf(req *request) account.Action {
	switch {
	case req.resourceType == "docs" && req.operation == "batch":
		return account.CreateItem
	case req.resourceType == "docs":
		return itemActions[req.operation]
	case req.resourceType == "" || req.resourceType == "dbs" || req.resourceType == "colls" || req.resourceType == "pkranges":
		switch req.operation {
		case "account", "read", "list", "query":
			return account.ReadMetadata
		}
	}
	return ""
}

// scopeOf returns the scope of the request's resource: lists of databases belong to the account, and lists of containers to their
// database.
func scopeOf(req *request) account.Scope {
	var scope account.Scope
	if len(req.segments) > 1 && req.segments[0] == "dbs" {
		scope.Database = req.segments[1]
	}
	if len(req.segments) > 3 && req.segments[2] == "colls" {
		scope.Container = req.segments[3]
	}
	return scope
}
