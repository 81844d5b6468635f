package frontdoor

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/throttle"
)

// maxOwnBody bounds the bodies that the door reads itself.
const maxOwnBody = 1 << 20

// answer is what the door says itself to a request, or nil when the resource provider is to answer.
func (d *Door) answer(r *request) *answer {
	if !hasVersion(r) && !belowProvider(r.URL.Path) {
		return refuse(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	segments := strings.Split(strings.ToLower(strings.Trim(r.URL.Path, "/")), "/")
	provider := strings.ToLower(Provider)
	switch {
	case len(segments) == 1 && segments[0] == "subscriptions":
		return d.listSubscriptions(r)
	case len(segments) == 1 && segments[0] == "tenants":
		return d.listTenants(r)
	case len(segments) == 2 && segments[0] == "providers" && segments[1] == provider:
		return onlyGet(r, func() *answer { return give(http.StatusOK, d.providerBody("", "")) })
	case len(segments) > 2 && segments[0] == "providers" && segments[1] == provider:
		return nil
	}
	var ok bool
	if r.path, ok = parsePath(r.URL.Path); !ok {
		return notFound(r)
	}
	return d.answerInSubscription(r)
}

// hasVersion reports whether the request has an api-version. Names of query parameters have no casing at ARM.
func hasVersion(r *request) bool {
	for name, values := range r.URL.Query() {
		if strings.EqualFold(name, "api-version") && values[0] != "" {
			return true
		}
	}
	return false
}

// belowProvider reports whether a path is one of the resource provider's own, which says itself what is wrong with the
// api-version of a request.
func belowProvider(urlPath string) bool {
	segments := strings.Split(strings.ToLower(strings.Trim(urlPath, "/")), "/")
	if segments[0] == "providers" {
		return len(segments) > 2 && segments[1] == strings.ToLower(Provider)
	}
	p, ok := parsePath(urlPath)
	return ok && p.forProvider() && !p.is("providers", Provider, "register") && !p.is("providers", Provider, "unregister")
}

func (d *Door) answerInSubscription(r *request) *answer {
	if len(r.path.rest) == 0 && r.path.group == "" && r.Method == http.MethodPut {
		return d.putSubscription(r)
	}
	s, known := d.options.Directory.Subscription(r.path.subscription)
	if !known || !strings.EqualFold(s.TenantID, r.caller.TenantID) {
		return refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", r.path.subscription)
	}
	if refused := d.throttle(r, s); refused != nil {
		return refused
	}
	if own := d.deployment(r, s); own != nil {
		return own
	}
	p := r.path
	switch {
	case p.group == "" && p.is():
		return onlyGet(r, func() *answer { return give(http.StatusOK, subscriptionBody(s)) })
	case p.group == "" && p.is("resourceGroups"):
		return onlyGet(r, func() *answer { return listGroups(s) })
	case p.group == "" && p.is("locations"):
		return onlyGet(r, func() *answer { return d.listLocations(s) })
	case p.group == "" && p.is("providers"):
		return onlyGet(r, func() *answer {
			return give(http.StatusOK, map[string]any{"value": []any{d.providerBody(s.ID, s.Provider)}})
		})
	case p.group == "" && p.begins("providers", "Microsoft.Features", "providers", Provider):
		return d.features(r, s)
	case p.group == "" && p.begins("providers", Provider) && len(p.rest) <= 3:
		if own := d.registration(r, s); own != nil {
			return own
		}
	case p.group == "" && p.is("operationresults", ""):
		return d.groupOperation(r, s, p.rest[1])
	case p.is("resources"):
		return onlyGet(r, func() *answer { return d.listResources(r, s) })
	case p.group != "" && p.is():
		return d.group(r, s)
	}
	if !p.forProvider() {
		return notFound(r)
	}
	return d.admit(r, s)
}

// throttle takes a token out of the subscription's bucket, and tells the caller how many are left, as ARM does.
func (d *Door) throttle(r *request, s directory.Subscription) *answer {
	kind := throttle.KindOf(r.Method)
	left, after := d.buckets.Take(s.ID, kind)
	r.answered.Set("x-ms-ratelimit-remaining-subscription-"+string(kind), strconv.Itoa(left))
	if after == 0 {
		return nil
	}
	seconds := strconv.Itoa(int((after + time.Second - 1) / time.Second))
	refused := refuse(http.StatusTooManyRequests, "SubscriptionRequestsThrottled", "Number of %s for subscription '%s' exceeded. Please try again after %s seconds.", kind, s.ID, seconds)
	refused.header = map[string]string{"Retry-After": seconds}
	return refused
}

// admit checks what ARM checks before it asks a resource provider; nil lets the request pass.
func (d *Door) admit(r *request, s directory.Subscription) *answer {
	if s.Provider != directory.Registered {
		return refuse(http.StatusConflict, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s'. See https://aka.ms/rps-not-found for how to register subscriptions.", Provider)
	}
	if r.path.group == "" {
		return nil
	}
	g, ok := s.Group(r.path.group)
	if !ok {
		return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
	}
	if g.Deleting && r.Method == http.MethodPut {
		return refuse(http.StatusConflict, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", g.Name)
	}
	return nil
}

func onlyGet(r *request, get func() *answer) *answer {
	if r.Method != http.MethodGet {
		return notAllowed(http.MethodGet)
	}
	return get()
}

func notAllowed(methods ...string) *answer {
	a := refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "The request's method is not supported here.")
	a.header = map[string]string{"Allow": strings.Join(methods, ", ")}
	return a
}

func notFound(r *request) *answer {
	return refuse(http.StatusNotFound, "NotFound", "There is nothing at the path '%s'.", r.URL.Path)
}

// read decodes a JSON body, strictly.
func read(r *request, into any) *answer {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxOwnBody+1))
	if err != nil || len(data) > maxOwnBody {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The request's body could not be read, or is larger than %d bytes.", maxOwnBody)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The request's body is not valid: %s.", err)
	}
	return nil
}

// fail turns the error of an update into an answer.
func (d *Door) fail(err error) *answer {
	var own *answer
	if errors.As(err, &own) {
		return own
	}
	d.options.Log.Error("answering", "error", err)
	return refuse(http.StatusInternalServerError, "InternalServerError", "The request could not be completed.")
}

func (d *Door) listSubscriptions(r *request) *answer {
	return onlyGet(r, func() *answer {
		values := []any{}
		for _, s := range d.options.Directory.Subscriptions() {
			if strings.EqualFold(s.TenantID, r.caller.TenantID) {
				values = append(values, subscriptionBody(s))
			}
		}
		return give(http.StatusOK, map[string]any{"value": values, "count": map[string]any{"type": "Total", "value": len(values)}})
	})
}

func (d *Door) listTenants(r *request) *answer {
	return onlyGet(r, func() *answer {
		id := r.caller.TenantID
		return give(http.StatusOK, map[string]any{"value": []any{map[string]string{"id": "/tenants/" + id, "tenantId": id, "tenantCategory": "Home"}}})
	})
}

func (d *Door) listLocations(s directory.Subscription) *answer {
	return give(http.StatusOK, map[string]any{"value": []any{map[string]any{
		"id": "/subscriptions/" + s.ID + "/locations/" + d.options.Location, "name": d.options.Location,
		"displayName": d.options.Location, "type": "Region", "metadata": map[string]string{"regionType": "Physical"},
	}}})
}

// putSubscription makes a subscription or changes its state. In Azure other services do that; here it is how a local
// subscription comes to be, and how a test warns, suspends or deletes one.
func (d *Door) putSubscription(r *request) *answer {
	if !uuid.MatchString(r.path.subscription) {
		return refuse(http.StatusBadRequest, "InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid.", r.path.subscription)
	}
	var body struct {
		DisplayName string `json:"displayName"`
		// State is what the resource provider is told: Registered, Warned, Suspended or Deleted. Absent keeps it.
		State string `json:"state"`
	}
	if refused := read(r, &body); refused != nil {
		return refused
	}
	if body.State != "" && !slices.Contains([]string{"Registered", "Warned", "Suspended", "Deleted"}, body.State) {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The state '%s' is not one of Registered, Warned, Suspended, Deleted.", body.State)
	}
	before, known := d.options.Directory.Subscription(r.path.subscription)
	if known && !strings.EqualFold(before.TenantID, r.caller.TenantID) {
		return refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", r.path.subscription)
	}
	if body.State != "" && before.State != body.State {
		if before.Provider != directory.Registered {
			return refuse(http.StatusConflict, "MissingSubscriptionRegistration", "The subscription is not registered to use namespace '%s', which is whom its state is told to.", Provider)
		}
		before.State = body.State
		if err := d.tell(r, before); err != nil {
			return d.fail(err)
		}
	}
	after, err := d.options.Directory.Update(r.path.subscription, func(s *directory.Subscription) error {
		s.TenantID = r.caller.TenantID
		if body.DisplayName != "" {
			s.Name = body.DisplayName
		}
		if body.State != "" {
			s.State = body.State
		}
		return nil
	})
	if err != nil {
		return d.fail(err)
	}
	if known {
		return give(http.StatusOK, subscriptionBody(after))
	}
	return give(http.StatusCreated, subscriptionBody(after))
}

// subscriptionAPIVersion is the resource provider contract's for subscription life cycle notifications.
const subscriptionAPIVersion = "2.0"

// tell sends the resource provider the state of a subscription.
func (d *Door) tell(r *request, s directory.Subscription) error {
	features := []any{}
	for _, name := range s.Features {
		features = append(features, map[string]string{"name": name, "state": "Registered"})
	}
	body := map[string]any{
		"state":            s.State,
		"registrationDate": s.RegistrationDate.UTC().Format(time.RFC1123),
		"properties":       map[string]any{"tenantId": s.TenantID, "registeredFeatures": features},
	}
	_, _, err := d.ask(r.Context(), r, http.MethodPut, "/subscriptions/"+s.ID+"?api-version="+subscriptionAPIVersion, body)
	return err
}

// registration answers the registration of the resource provider; nil for another resource of the provider.
func (d *Door) registration(r *request, s directory.Subscription) *answer {
	switch {
	case r.path.is("providers", Provider):
		return onlyGet(r, func() *answer { return give(http.StatusOK, d.providerBody(s.ID, s.Provider)) })
	case r.path.is("providers", Provider, "register"):
		return d.register(r, s, directory.Registered, "Registered")
	case r.path.is("providers", Provider, "unregister"):
		return d.register(r, s, directory.NotRegistered, "Unregistered")
	}
	return nil
}

// register tells the resource provider first and remembers afterwards, so that a subscription that counts as registered
// is one the provider knows.
func (d *Door) register(r *request, s directory.Subscription, registration, state string) *answer {
	if r.Method != http.MethodPost {
		return notAllowed(http.MethodPost)
	}
	if s.Provider == registration {
		return give(http.StatusOK, d.providerBody(s.ID, s.Provider))
	}
	s.State = state
	if s.RegistrationDate.IsZero() {
		s.RegistrationDate = time.Now()
	}
	if err := d.tell(r, s); err != nil {
		return d.fail(err)
	}
	after, err := d.options.Directory.Update(s.ID, func(stored *directory.Subscription) error {
		stored.Provider, stored.State = registration, state
		if stored.RegistrationDate.IsZero() {
			stored.RegistrationDate = s.RegistrationDate
		}
		return nil
	})
	if err != nil {
		return d.fail(err)
	}
	return give(http.StatusOK, d.providerBody(after.ID, after.Provider))
}

var featureName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// features answers Microsoft.Features for the resource provider: list, get, register and unregister.
func (d *Door) features(r *request, s directory.Subscription) *answer {
	rest := r.path.rest[4:]
	show := func(name string) any {
		state := "NotRegistered"
		if slices.Contains(s.Features, Provider+"/"+name) {
			state = "Registered"
		}
		return map[string]any{
			"id":   "/subscriptions/" + s.ID + "/providers/Microsoft.Features/providers/" + Provider + "/features/" + name,
			"name": Provider + "/" + name, "type": "Microsoft.Features/providers/features", "properties": map[string]string{"state": state},
		}
	}
	switch {
	case len(rest) == 1 && strings.EqualFold(rest[0], "features"):
		values := []any{}
		for _, name := range s.Features {
			values = append(values, show(strings.TrimPrefix(name, Provider+"/")))
		}
		return onlyGet(r, func() *answer { return give(http.StatusOK, map[string]any{"value": values}) })
	case len(rest) < 2 || len(rest) > 3 || !strings.EqualFold(rest[0], "features") || !featureName.MatchString(rest[1]):
		return notFound(r)
	case len(rest) == 2:
		return onlyGet(r, func() *answer { return give(http.StatusOK, show(rest[1])) })
	case r.Method != http.MethodPost:
		return notAllowed(http.MethodPost)
	}
	name := Provider + "/" + rest[1]
	s.Features = slices.DeleteFunc(s.Features, func(have string) bool { return have == name })
	switch strings.ToLower(rest[2]) {
	case "register":
		s.Features = append(s.Features, name)
	case "unregister":
	default:
		return notFound(r)
	}
	if s.Provider == directory.Registered {
		if err := d.tell(r, s); err != nil {
			return d.fail(err)
		}
	}
	features := s.Features
	if _, err := d.options.Directory.Update(s.ID, func(stored *directory.Subscription) error {
		stored.Features = features
		return nil
	}); err != nil {
		return d.fail(err)
	}
	return give(http.StatusOK, show(rest[1]))
}

// escape makes a path segment of a name.
func escape(name string) string { return url.PathEscape(name) }
