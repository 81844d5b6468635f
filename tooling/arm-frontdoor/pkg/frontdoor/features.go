package frontdoor

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// The states of a feature of a subscription. A customer's registration is pending until the provider approves it.
const (
	featureNotRegistered = "NotRegistered"
	featurePending       = "Pending"
	featureRegistered    = "Registered"
)

var featureNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// featureState returns the state of a feature, whose name includes the provider's.
func featureState(s Subscription, name string) string {
	switch {
	case slices.Contains(s.Features, name):
		return featureRegistered
	case slices.Contains(s.PendingFeatures, name):
		return featurePending
	}
	return featureNotRegistered
}

// featureBody returns the representation of a feature of the provider.
func featureBody(s Subscription, name string) any {
	return map[string]any{
		"id":   "/subscriptions/" + s.ID + "/providers/Microsoft.Features/providers/" + Provider + "/features/" + strings.TrimPrefix(name, Provider+"/"),
		"name": name, "type": "Microsoft.Features/providers/features", "properties": map[string]string{"state": featureState(s, name)},
	}
}

// respondForFeatures responds to requests of Microsoft.Features for the resource provider: list, get, register, unregister.
func (d *FrontDoor) respondForFeatures(r *request, s Subscription) *response {
	rest := r.path.rest[4:]
	switch {
	case len(rest) == 1 && asciifold.Equal(rest[0], "features"):
		values := []any{}
		for _, name := range slices.Concat(s.Features, s.PendingFeatures) {
			values = append(values, featureBody(s, name))
		}
		return onlyGet(r, func() *response { return newResponse(http.StatusOK, map[string]any{"value": values}) })
	case len(rest) < 2 || len(rest) > 3 || !asciifold.Equal(rest[0], "features") || !featureNamePattern.MatchString(rest[1]):
		return notFound(r)
	}
	name := Provider + "/" + rest[1]
	switch {
	case len(rest) == 2:
		return onlyGet(r, func() *response { return newResponse(http.StatusOK, featureBody(s, name)) })
	case r.Method != http.MethodPost:
		return methodNotAllowed(http.MethodPost)
	}
	switch asciifold.Lower(rest[2]) {
	case "register":
		if featureState(s, name) == featureNotRegistered {
			s.PendingFeatures = append(s.PendingFeatures, name)
		}
	case "unregister":
		removeFeature(&s, name)
	case "approve":
		return newError(http.StatusForbidden, "AuthorizationFailed",
			"The client with object id '%s' does not have authorization to approve the feature '%s'. Only the resource provider approves features.", r.caller.ObjectID, name)
	default:
		return notFound(r)
	}
	return d.storeFeatures(r, s, name)
}

// isFeatureApproval reports whether a path is that of the approval of one of the provider's features.
func isFeatureApproval(p path) bool {
	return p.group == "" && p.is("providers", "Microsoft.Features", "providers", Provider, "features", "", "approve")
}

// isProvider reports whether a caller is the client that the provider trusts as ARM. It alone approves features.
func (d *FrontDoor) isProvider(caller token.Caller) bool {
	client := d.options.ARMClient
	return client != nil && asciifold.Equal(client.TenantID, caller.TenantID) && client.ClientID == caller.ClientID && client.ObjectID == caller.ObjectID
}

// approveFeature registers a pending feature.
func (d *FrontDoor) approveFeature(r *request, s Subscription) *response {
	if r.Method != http.MethodPost {
		return methodNotAllowed(http.MethodPost)
	}
	name := Provider + "/" + r.path.rest[5]
	switch featureState(s, name) {
	case featureRegistered:
		return newResponse(http.StatusOK, featureBody(s, name))
	case featureNotRegistered:
		return newError(http.StatusConflict, "FeatureNotPending", "The subscription '%s' has not requested the feature '%s'.", s.ID, name)
	}
	removeFeature(&s, name)
	s.Features = append(s.Features, name)
	return d.storeFeatures(r, s, name)
}

// removeFeature removes a feature from the lists of a subscription.
func removeFeature(s *Subscription, name string) {
	is := func(other string) bool { return other == name }
	s.Features, s.PendingFeatures = slices.DeleteFunc(s.Features, is), slices.DeleteFunc(s.PendingFeatures, is)
}

// storeFeatures notifies the provider of the features of a subscription, stores them, and responds with one of them.
func (d *FrontDoor) storeFeatures(r *request, s Subscription, name string) *response {
	if s.Provider == Registered {
		if err := d.notifyProvider(r, s); err != nil {
			return d.errorResponse(err)
		}
	}
	after, err := d.options.Directory.Update(s.ID, func(stored *Subscription) error {
		stored.Features, stored.PendingFeatures = s.Features, s.PendingFeatures
		return nil
	})
	if err != nil {
		return d.errorResponse(err)
	}
	return newResponse(http.StatusOK, featureBody(after, name))
}
