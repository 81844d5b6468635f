package frontdoor

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// maxBody bounds the request bodies that are not forwarded.
const maxBody = 1 << 20

// respond returns the response of ARM itself, or nil if the request must be forwarded to the resource provider.
func (d *FrontDoor) respond(r *request) *response {
	if failure := d.throttlePrincipal(r); failure != nil {
		return failure
	}
	if !hasAPIVersion(r) && !isProviderPath(r.URL.Path) {
		return newError(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	segments := strings.Split(asciifold.Lower(strings.Trim(r.URL.Path, "/")), "/")
	provider := asciifold.Lower(Provider)
	switch {
	case len(segments) == 1 && segments[0] == "subscriptions":
		return d.listSubscriptions(r)
	case len(segments) == 1 && segments[0] == "tenants":
		return d.listTenants(r)
	case len(segments) == 2 && segments[0] == "providers" && segments[1] == provider:
		return onlyGet(r, func() *response { return newResponse(http.StatusOK, d.providerBody("", "")) })
	case len(segments) > 2 && segments[0] == "providers" && segments[1] == provider:
		return nil
	}
	var ok bool
	if r.path, ok = parsePath(r.URL.Path); !ok {
		return notFound(r)
	}
	return d.respondInSubscription(r)
}

// hasAPIVersion reports whether the request has an api-version. ARM ignores the case of query parameters' names.
func hasAPIVersion(r *request) bool {
	for name, values := range r.URL.Query() {
		if asciifold.Equal(name, "api-version") && values[0] != "" {
			return true
		}
	}
	return false
}

// isProviderPath reports whether the resource provider serves a path. The provider validates the api-version of these
// requests.
func isProviderPath(urlPath string) bool {
	segments := strings.Split(asciifold.Lower(strings.Trim(urlPath, "/")), "/")
	if segments[0] == "providers" {
		return len(segments) > 2 && segments[1] == asciifold.Lower(Provider)
	}
	p, ok := parsePath(urlPath)
	return ok && p.isProviderResource() && !p.is("providers", Provider, "register") && !p.is("providers", Provider, "unregister")
}

// isSubscriptionChange reports whether a request creates or changes a subscription itself.
func isSubscriptionChange(p path, method string) bool {
	return len(p.rest) == 0 && p.group == "" && method == http.MethodPut
}

// respondInSubscription is respond for paths below /subscriptions.
func (d *FrontDoor) respondInSubscription(r *request) *response {
	if isSubscriptionChange(r.path, r.Method) {
		return d.putSubscription(r)
	}
	s, exists := d.options.Directory.Subscription(r.path.subscription)
	if exists && isFeatureApproval(r.path) && d.isProvider(r.caller) {
		return d.approveFeature(r, s)
	}
	if !exists || !asciifold.Equal(s.TenantID, r.caller.TenantID) {
		return newError(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", r.path.subscription)
	}
	if failure := d.throttle(r, s); failure != nil {
		return failure
	}
	if response := d.respondForDeployment(r, s); response != nil {
		return response
	}
	p := r.path
	switch {
	case p.group == "" && p.is():
		return onlyGet(r, func() *response { return newResponse(http.StatusOK, subscriptionBody(s)) })
	case p.group == "" && p.is("resourceGroups"):
		return onlyGet(r, func() *response { return listGroups(s) })
	case p.group == "" && p.is("locations"):
		return onlyGet(r, func() *response { return d.listLocations(s) })
	case p.group == "" && p.is("providers"):
		return onlyGet(r, func() *response {
			return newResponse(http.StatusOK, map[string]any{"value": []any{d.providerBody(s.ID, s.Provider)}})
		})
	case p.group == "" && p.begins("providers", "Microsoft.Features", "providers", Provider):
		return d.respondForFeatures(r, s)
	case p.group == "" && p.begins("providers", Provider) && len(p.rest) <= 3:
		if response := d.respondForRegistration(r, s); response != nil {
			return response
		}
	case p.group == "" && p.is("operationresults", ""):
		return d.groupDeletionStatus(r, s, p.rest[1])
	case p.is("resources"):
		return onlyGet(r, func() *response { return d.listResources(r, s) })
	case p.group != "" && p.is():
		return d.respondForGroup(r, s)
	}
	if !p.isProviderResource() {
		return notFound(r)
	}
	return d.checkPreconditions(r, s)
}

// checkPreconditions does the checks of ARM before a call of the resource provider. It returns nil if they pass.
func (d *FrontDoor) checkPreconditions(r *request, s Subscription) *response {
	if s.Provider != Registered {
		return newError(http.StatusConflict, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", Provider)
	}
	if r.path.group == "" {
		return nil
	}
	g, ok := s.Group(r.path.group)
	if !ok {
		return newError(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
	}
	if g.Deleting && r.Method == http.MethodPut {
		return newError(http.StatusConflict, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", g.Name)
	}
	return nil
}

// onlyGet returns the response of get, or an error response for other methods than GET.
func onlyGet(r *request, get func() *response) *response {
	if r.Method != http.MethodGet {
		return methodNotAllowed(http.MethodGet)
	}
	return get()
}

// methodNotAllowed returns the error response for a path that supports only methods.
func methodNotAllowed(methods ...string) *response {
	failure := newError(http.StatusMethodNotAllowed, "MethodNotAllowed", "The request's method is not supported for this path.")
	failure.header = map[string]string{"Allow": strings.Join(methods, ", ")}
	return failure
}

// notFound returns the error response for a path that does not exist.
func notFound(r *request) *response {
	return newError(http.StatusNotFound, "NotFound", "The path '%s' does not exist.", r.URL.Path)
}

// decodeBody decodes the JSON body of a request.
func decodeBody(r *request, into any) *response {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return unreadable(err)
	}
	if len(data) > maxBody {
		return newError(http.StatusBadRequest, "InvalidRequestContent", "The request's body is larger than %d bytes.", maxBody)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return newError(http.StatusBadRequest, "InvalidRequestContent", "The request's body is not valid: %s.", err)
	}
	return nil
}

// errorResponse returns err if it is a *response, or logs err and returns an internal error.
func (d *FrontDoor) errorResponse(err error) *response {
	var failure *response
	if errors.As(err, &failure) {
		return failure
	}
	d.options.Log.Error("request failed", logkey.Error, err)
	return newError(http.StatusInternalServerError, "InternalServerError", "The request could not be completed.")
}

func (d *FrontDoor) listSubscriptions(r *request) *response {
	return onlyGet(r, func() *response {
		values := []any{}
		for _, s := range d.options.Directory.Subscriptions() {
			if asciifold.Equal(s.TenantID, r.caller.TenantID) {
				values = append(values, subscriptionBody(s))
			}
		}
		return newResponse(http.StatusOK, map[string]any{"value": values, "count": map[string]any{"type": "Total", "value": len(values)}})
	})
}

func (d *FrontDoor) listTenants(r *request) *response {
	return onlyGet(r, func() *response {
		id := r.caller.TenantID
		return newResponse(http.StatusOK, map[string]any{"value": []any{map[string]string{"id": "/tenants/" + id, "tenantId": id, "tenantCategory": "Home"}}})
	})
}

func (d *FrontDoor) listLocations(s Subscription) *response {
	return newResponse(http.StatusOK, map[string]any{"value": []any{map[string]any{
		"id": "/subscriptions/" + s.ID + "/locations/" + d.options.Location, "name": d.options.Location,
		"displayName": d.options.Location, "type": "Region", "metadata": map[string]string{"regionType": "Physical"},
	}}})
}

// putSubscription creates a subscription of the caller's tenant, or changes its name, which other services do in Azure. Only the client that
// identifies ARM sets the state: in Azure, it follows from the contract and the payments of the customer.
func (d *FrontDoor) putSubscription(r *request) *response {
	if !uuidPattern.MatchString(r.path.subscription) {
		return newError(http.StatusBadRequest, "InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid.", r.path.subscription)
	}
	var body struct {
		DisplayName string `json:"displayName"`
		// State is the state for the resource provider: Registered, Warned, Suspended or Deleted. If absent, it is
		// unchanged.
		State string `json:"state"`
	}
	if failure := decodeBody(r, &body); failure != nil {
		return failure
	}
	if body.State != "" && !slices.Contains([]string{"Registered", "Warned", "Suspended", "Deleted"}, body.State) {
		return newError(http.StatusBadRequest, "InvalidRequestContent", "The state '%s' is invalid. Supported values are Registered, Warned, Suspended and Deleted.", body.State)
	}
	before, exists := d.options.Directory.Subscription(r.path.subscription)
	provider := d.isProvider(r.caller)
	if exists && !provider && !asciifold.Equal(before.TenantID, r.caller.TenantID) || !exists && provider {
		return newError(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", r.path.subscription)
	}
	if body.State != "" && !provider {
		return newError(http.StatusForbidden, "AuthorizationFailed",
			"The client with object id '%s' does not have authorization to set the state of the subscription '%s'. Only Azure Resource Manager sets it.", r.caller.ObjectID, r.path.subscription)
	}
	if body.State != "" && before.State != body.State {
		if before.Provider != Registered {
			return newError(http.StatusConflict, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s', so its state cannot be changed.", Provider)
		}
		before.State = body.State
		if err := d.notifyProvider(r, before); err != nil {
			return d.errorResponse(err)
		}
	}
	after, err := d.options.Directory.Update(r.path.subscription, func(s *Subscription) error {
		switch {
		case s.TenantID == "":
			s.TenantID = r.caller.TenantID
		case !provider && !asciifold.Equal(s.TenantID, r.caller.TenantID):
			// Another tenant has created it in the meantime.
			return newError(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", r.path.subscription)
		}
		if body.DisplayName != "" {
			s.Name = body.DisplayName
		}
		if body.State != "" {
			s.State = body.State
		}
		return nil
	})
	if err != nil {
		return d.errorResponse(err)
	}
	if exists {
		return newResponse(http.StatusOK, subscriptionBody(after))
	}
	return newResponse(http.StatusCreated, subscriptionBody(after))
}

// subscriptionAPIVersion is the api-version of subscription notifications in the resource provider contract.
const subscriptionAPIVersion = "2.0"

// notifyProvider sends the state of a subscription to the resource provider.
func (d *FrontDoor) notifyProvider(r *request, s Subscription) error {
	features := []any{}
	for _, name := range slices.Concat(s.Features, s.PendingFeatures) {
		features = append(features, map[string]string{"name": name, "state": featureState(s, name)})
	}
	body := map[string]any{
		"state":            s.State,
		"registrationDate": s.RegistrationDate.UTC().Format(time.RFC1123),
		"properties":       map[string]any{"tenantId": s.TenantID, "registeredFeatures": features},
	}
	_, _, err := d.callProvider(r.Context(), r, http.MethodPut, "/subscriptions/"+s.ID+"?api-version="+subscriptionAPIVersion, body)
	return err
}

// respondForRegistration responds to requests for the registration of the resource provider. It returns nil for its
// resources.
func (d *FrontDoor) respondForRegistration(r *request, s Subscription) *response {
	switch {
	case r.path.is("providers", Provider):
		return onlyGet(r, func() *response { return newResponse(http.StatusOK, d.providerBody(s.ID, s.Provider)) })
	case r.path.is("providers", Provider, "register"):
		return d.register(r, s, Registered, "Registered")
	case r.path.is("providers", Provider, "unregister"):
		return d.register(r, s, NotRegistered, "Unregistered")
	}
	return nil
}

// register notifies the resource provider before it stores the registration, so that the provider knows every registered
// subscription. A registration must not end the state that ARM has set.
func (d *FrontDoor) register(r *request, s Subscription, registration, state string) *response {
	if r.Method != http.MethodPost {
		return methodNotAllowed(http.MethodPost)
	}
	if slices.Contains([]string{"Warned", "Suspended", "Deleted"}, s.State) {
		return newError(http.StatusConflict, "ReadOnlyDisabledSubscription", "The subscription '%s' is disabled and therefore marked as read only. You cannot perform any write actions on this subscription until it is re-enabled.", s.ID)
	}
	if s.Provider == registration {
		return newResponse(http.StatusOK, d.providerBody(s.ID, s.Provider))
	}
	s.State = state
	if s.RegistrationDate.IsZero() {
		s.RegistrationDate = time.Now()
	}
	if err := d.notifyProvider(r, s); err != nil {
		return d.errorResponse(err)
	}
	after, err := d.options.Directory.Update(s.ID, func(stored *Subscription) error {
		stored.Provider, stored.State = registration, state
		if stored.RegistrationDate.IsZero() {
			stored.RegistrationDate = s.RegistrationDate
		}
		return nil
	})
	if err != nil {
		return d.errorResponse(err)
	}
	return newResponse(http.StatusOK, d.providerBody(after.ID, after.Provider))
}

// escape escapes a name as a path segment.
func escape(name string) string { return url.PathEscape(name) }
