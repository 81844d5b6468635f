package frontdoor

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// Provider is the namespace of the resource provider.
const Provider = "Microsoft.RedHatOpenShift"

// response is a response of ARM itself: a status with a body, or an error with a code. Errors implement error.
type response struct {
	status  int
	code    string
	message string
	body    any
	header  map[string]string
	// target and details are copied from an error of the resource provider.
	target  string
	details []json.RawMessage
}

// Error returns code and message.
func (r *response) Error() string { return r.code + ": " + r.message }

// newError returns an error response with a formatted message.
func newError(status int, code, format string, args ...any) *response {
	return &response{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// newResponse returns a response with a JSON body; nil means no body.
func newResponse(status int, body any) *response { return &response{status: status, body: body} }

// write writes the response with a new request ID.
func (r *response) write(w http.ResponseWriter) {
	for name, value := range r.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("x-ms-request-id", uuid.NewString())
	body := r.body
	if r.code != "" {
		w.Header().Set("x-ms-error-code", r.code)
		e := map[string]any{"code": r.code, "message": r.message}
		if r.target != "" {
			e["target"] = r.target
		}
		if len(r.details) > 0 {
			e["details"] = r.details
		}
		body = map[string]any{"error": e}
	}
	if body == nil {
		w.WriteHeader(r.status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(body)
}

// path is a parsed ARM path: /subscriptions/{s}[/resourceGroups/{rg}][/rest...]. Comparisons of keywords ignore the case of ASCII letters.
type path struct {
	subscription string
	group        string
	// rest holds the segments after the subscription or the group.
	rest []string
}

// parsePath parses a path below /subscriptions. ok is false for other paths.
func parsePath(urlPath string) (p path, ok bool) {
	segments := strings.Split(strings.Trim(urlPath, "/"), "/")
	if !asciifold.Equal(segments[0], "subscriptions") || len(segments) < 2 {
		return path{}, false
	}
	p.subscription, p.rest = segments[1], segments[2:]
	if len(p.rest) >= 2 && asciifold.Equal(p.rest[0], "resourceGroups") {
		p.group, p.rest = p.rest[1], p.rest[2:]
	}
	return p, true
}

// is reports whether the rest of the path equals words. An empty word matches any segment.
func (p path) is(words ...string) bool {
	return len(p.rest) == len(words) && p.begins(words...)
}

// begins reports whether the rest of the path begins with words. An empty word matches any segment.
func (p path) begins(words ...string) bool {
	if len(p.rest) < len(words) {
		return false
	}
	for i, word := range words {
		if word != "" && !asciifold.Equal(p.rest[i], word) {
			return false
		}
	}
	return true
}

// isProviderResource reports whether the resource provider serves the path.
func (p path) isProviderResource() bool { return len(p.rest) > 2 && p.begins("providers", Provider) }

// subscriptionBody returns the representation of a subscription.
func subscriptionBody(s Subscription) any {
	state := "Enabled"
	switch s.State {
	case "Warned", "Suspended", "Deleted":
		state = map[string]string{"Warned": "Warned", "Suspended": "Disabled", "Deleted": "Deleted"}[s.State]
	}
	return map[string]any{
		"id": "/subscriptions/" + s.ID, "subscriptionId": s.ID, "displayName": s.Name, "tenantId": s.TenantID,
		"state": state, "authorizationSource": "RoleBased", "managedByTenants": []any{},
		"subscriptionPolicies": map[string]string{"locationPlacementId": "Public_2014-09-01", "quotaId": "Local", "spendingLimit": "Off"},
	}
}

// groupBody returns the representation of a resource group.
func groupBody(s Subscription, g Group) any {
	state := "Succeeded"
	if g.Deleting {
		state = "Deleting"
	}
	body := map[string]any{
		"id": "/subscriptions/" + s.ID + "/resourceGroups/" + g.Name, "name": g.Name, "type": "Microsoft.Resources/resourceGroups",
		"location": g.Location, "properties": map[string]string{"provisioningState": state},
	}
	if g.Tags != nil {
		body["tags"] = g.Tags
	}
	if g.ManagedBy != "" {
		body["managedBy"] = g.ManagedBy
	}
	return body
}

// providerBody returns the representation of the resource provider, for a subscription if that is not empty.
func (d *FrontDoor) providerBody(subscription string, registration string) any {
	types := []any{}
	const tracked = "SupportsTags, SupportsLocation"
	for _, resource := range []struct{ name, capabilities string }{
		{"hcpOpenShiftClusters", tracked}, {"hcpOpenShiftClusters/nodePools", tracked}, {"hcpOpenShiftClusters/externalAuths", "None"},
		{"locations", "None"}, {"locations/hcpOpenShiftVersions", "None"}, {"locations/hcpOperatorIdentityRoleSets", "None"},
		{"locations/hcpOperationStatuses", "None"}, {"locations/hcpOperationResults", "None"}, {"operations", "None"},
	} {
		types = append(types, map[string]any{
			"resourceType": resource.name, "locations": []string{d.options.Location}, "apiVersions": d.options.APIVersions,
			"defaultApiVersion": d.options.APIVersions[0], "capabilities": resource.capabilities,
		})
	}
	body := map[string]any{"namespace": Provider, "resourceTypes": types, "registrationPolicy": "RegistrationRequired"}
	if subscription != "" {
		body["id"] = "/subscriptions/" + subscription + "/providers/" + Provider
		body["registrationState"] = registration
	}
	return body
}
