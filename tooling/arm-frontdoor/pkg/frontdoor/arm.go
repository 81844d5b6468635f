package frontdoor

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
)

// Provider is the namespace of the resource provider behind the door.
const Provider = "Microsoft.RedHatOpenShift"

// answer is what the front door says itself, as ARM says it: a status with a body, or an error with a code.
type answer struct {
	status int
	code   string
	text   string
	body   any
	header map[string]string
	// target and details are those of an error, as somebody else worded them.
	target  string
	details []json.RawMessage
}

func (a *answer) Error() string { return a.code + ": " + a.text }

func refuse(status int, code, format string, args ...any) *answer {
	return &answer{status: status, code: code, text: fmt.Sprintf(format, args...)}
}

func give(status int, body any) *answer { return &answer{status: status, body: body} }

func (a *answer) write(w http.ResponseWriter) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("x-ms-request-id", newUUID())
	body := a.body
	if a.code != "" {
		w.Header().Set("x-ms-error-code", a.code)
		e := map[string]any{"code": a.code, "message": a.text}
		if a.target != "" {
			e["target"] = a.target
		}
		if len(a.details) > 0 {
			e["details"] = a.details
		}
		body = map[string]any{"error": e}
	}
	if body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(body)
}

// path is an ARM path: /subscriptions/{s}[/resourceGroups/{rg}][/rest...]. Its keywords are compared without regard to
// case.
type path struct {
	subscription string
	group        string
	// rest are the segments after the subscription or the group.
	rest []string
}

// parsePath splits a path below /subscriptions; ok is false for others.
func parsePath(urlPath string) (p path, ok bool) {
	segments := strings.Split(strings.Trim(urlPath, "/"), "/")
	if !strings.EqualFold(segments[0], "subscriptions") || len(segments) < 2 {
		return path{}, false
	}
	p.subscription, p.rest = segments[1], segments[2:]
	if len(p.rest) >= 2 && strings.EqualFold(p.rest[0], "resourceGroups") {
		p.group, p.rest = p.rest[1], p.rest[2:]
	}
	return p, true
}

// is reports whether the rest of the path is exactly the words; an empty word matches any segment.
func (p path) is(words ...string) bool {
	return len(p.rest) == len(words) && p.begins(words...)
}

// begins reports whether the rest of the path begins with the words; an empty word matches any segment.
func (p path) begins(words ...string) bool {
	if len(p.rest) < len(words) {
		return false
	}
	for i, word := range words {
		if word != "" && !strings.EqualFold(p.rest[i], word) {
			return false
		}
	}
	return true
}

// forProvider reports whether the request is the resource provider's.
func (p path) forProvider() bool { return len(p.rest) > 2 && p.begins("providers", Provider) }

// subscriptionBody is a subscription as ARM shows it.
func subscriptionBody(s directory.Subscription) any {
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

// groupBody is a resource group as ARM shows it.
func groupBody(s directory.Subscription, g directory.Group) any {
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

// providerBody is the resource provider as ARM shows it, to everybody or to a subscription.
func (d *Door) providerBody(subscription string, registration string) any {
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
