package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// stage checks every request before its handler. An error ends the request.
type stage func(s *Server, ctx context.Context, rq *request) error

// stages returns the stages in their order. Authentication is first, so that nothing else of an unauthenticated request
// is evaluated. A request waits for its seat before its body is read. The stage that reads the store is last.
func stages() []stage {
	return []stage{
		authenticate,
		limitRate,
		checkRoute,
		admit,
		readBody,
		checkContentType,
		readSystemData,
		checkResourceID,
		readVersion,
		checkOptions,
		readSubscription,
	}
}

// authenticate rejects requests that the Authenticator does not accept. Health endpoints need no authentication beyond
// that of the listener.
func authenticate(s *Server, ctx context.Context, rq *request) error {
	if s.Authenticator == nil || rq.match.route != nil && rq.match.route.health {
		return nil
	}
	release, err := s.authentications.Acquire(ctx, "")
	if err != nil {
		return s.refuse(ctx, err, "")
	}
	defer release()
	sender, err := s.Authenticator.Authenticate(ctx, rq.http)
	if err != nil {
		return err
	}
	rq.sender = sender
	return nil
}

// checkRoute rejects unknown paths with 404, and wrong methods of known paths with 405 and the allowed ones.
func checkRoute(_ *Server, _ context.Context, rq *request) error {
	if rq.match.route != nil {
		return nil
	}
	allowed := rq.match.allowed
	if len(allowed) == 0 {
		return apierror.New(apierror.NotFound, "The API has no route for this path.")
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	methods := strings.Join(allowed, ", ")
	rq.w.Header().Set("Allow", methods) // RFC 9110, section 15.5.6
	return apierror.New(apierror.MethodNotAllowed, "The path does not have this method; it has %s.", methods)
}

// maxBody is the largest request body, which is ARM's own limit.
const maxBody = 4 << 20

// maxDiscarded is the most bytes of a too large body that are read and discarded. A client that sends the whole body
// before it reads the response would otherwise see a broken connection instead of the error.
const maxDiscarded = 16 << 20

func readBody(_ *Server, _ context.Context, rq *request) error {
	if !hasBody(rq.http.Method) {
		return nil
	}
	tooLarge := apierror.New(apierror.InvalidResource, "The request content exceeds the limit of %d bytes.", maxBody)
	if rq.http.ContentLength > maxBody {
		rq.discard()
		return tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(rq.w, rq.http.Body, maxBody))
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		rq.discard()
		return tooLarge
	}
	if err != nil {
		return apierror.New(apierror.InvalidResource, "The request content could not be read: it is not complete.").WithCause(err)
	}
	rq.body = body
	return nil
}

// discard reads the rest of the body, unless the client waits for 100-continue before it sends one.
func (rq *request) discard() {
	if rq.http.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, rq.http.Body, maxDiscarded)
	}
}

func hasBody(method string) bool {
	return method == http.MethodPut || method == http.MethodPatch || method == http.MethodPost
}

func checkContentType(_ *Server, _ context.Context, rq *request) error {
	contentType := rq.http.Header.Get("Content-Type")
	if !hasBody(rq.http.Method) || contentType == "" && len(rq.body) == 0 {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" {
		return apierror.New(apierror.UnsupportedMediaType, "The content type %s is not supported; send application/json.", wire.FormatValue(contentType)).WithTarget("content-type")
	}
	// JSON is UTF-8 (RFC 8259, section 8.1), and US-ASCII is a subset of it.
	if charset := parameters["charset"]; charset != "" && !asciifold.Equal(charset, "utf-8") && !asciifold.Equal(charset, "us-ascii") {
		return apierror.New(apierror.UnsupportedMediaType, "The charset %s is not supported; send UTF-8.", wire.FormatValue(charset)).WithTarget("content-type")
	}
	if encoding := strings.Join(rq.http.Header.Values("Content-Encoding"), ", "); encoding != "" && !asciifold.Equal(encoding, "identity") {
		// RFC 9110, section 12.5.3: the header names the supported encodings.
		rq.w.Header().Set("Accept-Encoding", "identity")
		return apierror.New(apierror.UnsupportedMediaType, "The content encoding %s is not supported; send the content without encoding.", wire.FormatValue(encoding)).WithTarget("content-encoding")
	}
	return nil
}

func readSystemData(_ *Server, _ context.Context, rq *request) error {
	if rq.http.Method != http.MethodPut && rq.http.Method != http.MethodPatch {
		return nil
	}
	text := rq.http.Header.Get(armheader.SystemData)
	if text == "" {
		return nil
	}
	data, err := parseSystemData(text)
	if err != nil {
		return apierror.New(apierror.InvalidParameter, "The header is not valid: %s.", err).WithTarget(strings.ToLower(armheader.SystemData))
	}
	rq.systemData = data
	return nil
}

// parseSystemData parses the header in which ARM names the caller and the time of a change.
func parseSystemData(text string) (*hub.SystemData, error) {
	fields, err := wire.ParseObject([]byte(text))
	if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) {
		return nil, duplicate
	}
	if err != nil {
		return nil, errors.New("it is not a JSON object")
	}
	body := wire.NewBody(fields)
	data := &hub.SystemData{
		CreatedBy:          body.String("createdBy", ""),
		CreatedByType:      body.String("createdByType", ""),
		CreatedAt:          body.Time("createdAt"),
		LastModifiedBy:     body.String("lastModifiedBy", ""),
		LastModifiedByType: body.String("lastModifiedByType", ""),
		LastModifiedAt:     body.Time("lastModifiedAt"),
	}
	if problems := body.Problems(); len(problems) > 0 {
		return nil, errors.New(problems[0].Field + ": " + problems[0].Message)
	}
	return data, nil
}

func checkResourceID(_ *Server, _ context.Context, rq *request) error {
	if id := rq.param(subscriptionParam); id != "" && !validation.IsUUID(id) {
		return apierror.New(apierror.InvalidSubscriptionID, "The provided subscription identifier %s is malformed or invalid.", wire.FormatValue(id)).WithTarget("subscriptionId")
	}
	if group := rq.param(resourceGroupParam); group != "" && !validation.IsResourceGroupName(group) {
		return apierror.New(apierror.InvalidResourceGroupName, "The resource group name %s is invalid.", wire.FormatValue(group)).WithTarget("resourceGroupName")
	}
	if cluster := rq.param(clusterParam); cluster != "" {
		rq.invalidParent = len(validation.ClusterName(cluster)) > 0
		rq.invalidName = rq.invalidParent
	}
	if child := rq.param(childParam); child != "" {
		rq.invalidName = rq.invalidParent || len(validation.NodePoolName(child)) > 0
	}
	rq.composeResourceID()
	return nil
}

// rejectInvalidName responds to a request for a resource whose name no resource can have, without reading the store: such
// a name may contain any character. It returns false for other requests, and for a PUT of such a resource in an existing
// cluster, which gets violations at id.
func rejectInvalidName(rq *request) (rejected bool, err error) {
	method := rq.http.Method
	switch {
	case !rq.invalidName || method == http.MethodPut && !(rq.isChild() && rq.invalidParent):
		return false, nil
	case method == http.MethodDelete:
		rq.w.WriteHeader(http.StatusNoContent)
		return true, nil
	case rq.isChild() && rq.invalidParent:
		return true, notFound(rq.printable(rq.clusterID()))
	}
	return true, notFound(rq.printable(rq.resourceID))
}

// nameViolations returns the violations of the name in the path, at id.
func (rq *request) nameViolations() []apierror.Violation {
	if rq.isChild() {
		return validation.NodePoolName(rq.param(childParam))
	}
	return validation.ClusterName(rq.param(clusterParam))
}

func readVersion(s *Server, _ context.Context, rq *request) error {
	if rq.match.route.versioning == noVersion {
		return nil
	}
	refuse := func(kind apierror.Kind, format string, args ...any) error {
		supported := strings.Join(slices.Sorted(maps.Keys(s.versions)), ", ")
		return apierror.New(kind, format+" The supported api-versions are '%s'.", append(args, supported)...).WithTarget("api-version")
	}
	name := rq.queryValue("api-version")
	if name == "" {
		return refuse(apierror.InvalidParameter, "An api-version query parameter is required.")
	}
	if len(rq.queryValues("api-version")) > 1 {
		return refuse(apierror.InvalidParameter, "The api-version query parameter must be given once.")
	}
	var ok bool
	if rq.version, ok = s.versions[asciifold.Lower(name)]; !ok {
		return refuse(apierror.InvalidResourceType, "The api-version %s is not supported for this resource type.", wire.FormatValue(name))
	}
	return nil
}

// checkOptions rejects OData query options that a list does not support. A list that ignored $filter would return resources that
// the client did not ask for.
func checkOptions(_ *Server, _ context.Context, rq *request) error {
	route := rq.match.route
	if !route.lists {
		return nil
	}
	if rq.malformedQuery {
		return apierror.New(apierror.InvalidParameter, "The query string is malformed.").WithTarget("query")
	}
	supported := "The list supports no query options."
	if len(route.options) > 0 {
		supported = "The list supports " + strings.Join(route.options, " and ") + "."
	}
	for _, name := range slices.Sorted(maps.Keys(rq.query)) {
		isName := func(option string) bool { return asciifold.Equal(option, name) }
		if strings.HasPrefix(name, "$") && !slices.ContainsFunc(route.options, isName) {
			return apierror.New(apierror.InvalidParameter, "The query option %s is not supported. %s", wire.FormatValue(name), supported).WithTarget(rq.printable(name))
		}
	}
	return nil
}

// readSubscription checks that the subscription's state allows the request. A write reads the subscription from the
// store; a read may use a cached one.
func readSubscription(s *Server, ctx context.Context, rq *request) error {
	id := rq.param(subscriptionParam)
	if id == "" || rq.match.route.lifecycle {
		return nil
	}
	target := "/subscriptions/" + id
	item, err := s.subscriptions.get(ctx, id, rq.writes())
	if err != nil {
		return err
	}
	if item == nil {
		return apierror.New(apierror.InvalidSubscriptionState, "The subscription %s is not registered with %s.", id, hub.ProviderNamespace).WithTarget(target)
	}
	target = item.Key.ResourceID
	rq.adopt(target)
	document := &item.Value
	rq.subscription, rq.clusterQuota = &document.Subscription, s.ClustersPerSubscription
	// A quota may be higher before an engineer sets it or resets it to the default.
	if quota := document.ClusterQuota; quota != nil {
		rq.clusterQuotaSet = true
		if quota.Clusters != nil {
			rq.clusterQuota = *quota.Clusters
		}
	}
	switch state := rq.subscription.State; state {
	case hub.Registered:
		return nil
	case hub.Warned, hub.Suspended:
		if !rq.writes() || rq.http.Method == http.MethodDelete {
			return nil
		}
		return apierror.New(apierror.SubscriptionConflict, "The request is not allowed while the subscription is %s.", state).WithTarget(target)
	default:
		return apierror.New(apierror.InvalidSubscriptionState, "The request is not allowed in the subscription's state %s.", state).WithTarget(target)
	}
}

// systemDataOf returns the systemData after a change. stored is nil for a new resource.
func (rq *request) systemDataOf(stored *hub.SystemData, now time.Time) *hub.SystemData {
	stamped := &hub.SystemData{}
	if rq.systemData != nil {
		*stamped = *rq.systemData
	}
	if stamped.LastModifiedAt == nil {
		stamped.LastModifiedAt = &now
	}
	if stored != nil {
		stamped.CreatedBy, stamped.CreatedByType, stamped.CreatedAt = stored.CreatedBy, stored.CreatedByType, stored.CreatedAt
		return stamped
	}
	if stamped.CreatedAt == nil {
		stamped.CreatedAt = stamped.LastModifiedAt
	}
	return stamped
}
