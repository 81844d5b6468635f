package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ARM sends a preflight before it executes a deployment, to find out whether the resource provider would accept its
// resources. Each resource passes the route, names, decoding, rules and reservations of its PUT. Only temporary
// conflicts are ignored: that a resource or its cluster has an operation in progress.

// preflightAnswer is the body of every preflight response. Status is Succeeded or Failed.
type preflightAnswer struct {
	Status string       `json:"status"`
	Error  *errorDetail `json:"error,omitempty"`
}

// maxDeployed is the most resources of a deployment, which is ARM's own limit.
const maxDeployed = 800

// preflightCheck returns the error with which a PUT would be rejected. rq is the request of that PUT.
type preflightCheck func(s *Server, ctx context.Context, rq *request, d *deployment, p *plannedResource) error

// plannedResource is a resource of a deployment.
type plannedResource struct {
	text wire.Text
	// fields are decoded after the type and the version are known.
	fields map[string]any
	// unknown lists the fields whose values are known only when the deployment runs.
	unknown validation.Unknown
	// unknownID is set if the resource's ID is not known, so that the store cannot be read.
	unknownID bool
}

// deployment holds the values that resources of a deployment need from each other.
type deployment struct {
	// clusters are the clusters that the deployment creates or changes, by key.
	clusters map[string]*plannedCluster
	// reserved holds the reservations of the deployment's resources.
	reserved map[database.Key]database.ReservationDocument
	// created are the numbers of new resources by type.
	created map[string]int
}

type plannedCluster struct {
	document database.ClusterDocument
	unknown  validation.Unknown
}

// preflight validates a deployment. A response with status 200 contains the errors of the deployment; another status
// means that it could not be validated.
func (s *Server) preflight(ctx context.Context, rq *request) error {
	refused, err := s.validateDeployment(ctx, rq)
	if err != nil {
		return err
	}
	if refused == nil {
		return rq.w.json(http.StatusOK, preflightAnswer{Status: "Succeeded"})
	}
	return rq.w.json(http.StatusOK, preflightAnswer{Status: "Failed", Error: refused})
}

// rejection is the reason why a resource of a deployment would be rejected.
type rejection struct {
	// target is the resource's ID, or its index in the deployment.
	target string
	err    *apierror.Error
}

func (s *Server) validateDeployment(ctx context.Context, rq *request) (*errorDetail, error) {
	resources, err := rq.deploymentResources()
	if err != nil {
		detail := rq.describe(apierror.As(err))
		return &detail, nil
	}
	// Clusters come first because their children are validated against them.
	order := slices.SortedStableFunc(maps.Keys(resources), func(a, b int) int {
		if byDepth := depth(resources[a].fields) - depth(resources[b].fields); byDepth != 0 {
			return byDepth
		}
		return a - b
	})
	d := &deployment{clusters: map[string]*plannedCluster{}, reserved: map[database.Key]database.ReservationDocument{}, created: map[string]int{}}
	var refusals []rejection
	violations := 0
	for _, i := range order {
		if violations >= apierror.MaxViolations {
			return summary(refusals, true), nil
		}
		target, known, err := s.validatePlanned(ctx, rq, d, resources[i])
		if !known {
			continue
		}
		if err == nil {
			continue
		}
		if target == "" {
			target = fmt.Sprintf("resources[%d]", i)
		}
		e := apierror.As(err)
		if status := e.Kind.HTTPStatus(); status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
			return nil, err
		}
		refusals = append(refusals, rejection{target, e})
		violations += max(1, len(e.Violations))
	}
	return summary(refusals, false), nil
}

// summary returns the error of a deployment: that of its rejected resource, or an error with a detail for each of several. ended
// is set if the errors of the first resources reached the limit, so that the others were not validated.
func summary(refusals []rejection, ended bool) *errorDetail {
	if len(refusals) == 0 {
		return nil
	}
	all := errorDetail{Code: multipleErrors, Message: fmt.Sprintf("%d resources of the deployment are invalid", len(refusals))}
	for _, r := range refusals {
		all.Details = append(all.Details, r.describe())
	}
	if ended {
		all.Message = fmt.Sprintf("At least %d resources of the deployment are invalid", len(refusals))
		all.Details = append(all.Details, errorDetail{Code: multipleErrors,
			Message: fmt.Sprintf("The other resources were not validated, because these have %d errors or more.", apierror.MaxViolations)})
	}
	if len(all.Details) == 1 {
		return &all.Details[0]
	}
	return &all
}

// describe returns the error of a rejected resource as the published service reports it: with the code of the PUT's error,
// the resource as its target, and the violations as its details.
func (r rejection) describe() errorDetail {
	inner := describe(r.err)
	own := errorDetail{Code: inner.Code, Message: "The resource of the deployment is invalid.", Target: strings.Replace(r.target, "/resourceGroups/", "/resourcegroups/", 1), Details: inner.Details}
	if len(own.Details) == 0 {
		own.Details = []errorDetail{inner}
	}
	return own
}

// deploymentForm returns the form of a deployment. Its resources are decoded when their types are known.
func deploymentForm() *wire.Form {
	return wire.Fields(map[string]*wire.Form{"resources": wire.List(maxDeployed, wire.TextOfObject())})
}

// kindForm returns the form of the fields that determine how a resource of a deployment is decoded.
func kindForm() *wire.Form {
	return wire.Fields(map[string]*wire.Form{"type": wire.Scalar(), "name": wire.Scalar(), "apiVersion": wire.Scalar(), "scope": wire.Scalar()})
}

// deployedResource is a resource of a deployment that is not decoded yet.
type deployedResource struct {
	// fields has those of kindForm.
	fields map[string]any
	text   wire.Text
}

// deploymentResources returns the resources of the deployment by index.
func (rq *request) deploymentResources() (map[int]deployedResource, error) {
	fields, err := rq.object(deploymentForm())
	if err != nil {
		return nil, err
	}
	if count := wire.NewBody(fields).Len("resources"); count > maxDeployed {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "resources", Message: wire.TooMany(count, maxDeployed)}})
	}
	list, ok := fields["resources"].([]any)
	if !ok && fields["resources"] != nil {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "resources", Message: "Invalid value: " + wire.FormatValue(fields["resources"]) + ": must be an array"}})
	}
	resources := make(map[int]deployedResource, len(list))
	form := kindForm()
	var violations []apierror.Violation
	for i, element := range list {
		at := fmt.Sprintf("resources[%d]", i)
		text, ok := element.(wire.Text)
		if !ok {
			violations = append(violations, apierror.Violation{Field: at, Message: "Invalid value: " + wire.FormatValue(element) + ": must be an object"})
			continue
		}
		fields, err := text.Decode(form)
		if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) {
			return nil, refusedBody(&wire.DuplicateError{Field: at + "." + duplicate.Field})
		}
		resources[i] = deployedResource{fields, text}
	}
	return resources, apierror.InvalidFields(violations)
}

// text returns a string field, or the empty string.
func text(fields map[string]any, name string) string {
	value, _ := fields[name].(string)
	return value
}

// depth returns the number of slashes in a resource's type, which grows with the number of parents.
func depth(fields map[string]any) int { return strings.Count(text(fields, "type"), "/") }

// unnamed replaces an unknown name or resource group.
const unnamed = "unknown"

// validatePlanned validates one resource. known is false for resources of other providers and for resources that cannot
// be validated.
func (s *Server) validatePlanned(ctx context.Context, rq *request, d *deployment, resource deployedResource) (target string, known bool, err error) {
	fields := resource.fields
	resourceType, name, version := text(fields, "type"), text(fields, "name"), text(fields, "apiVersion")
	namespace, types, _ := strings.Cut(resourceType, "/")
	if !asciifold.Equal(namespace, hub.ProviderNamespace) || types == "" || validation.IsExpression(version) {
		return "", false, nil
	}
	p := &plannedResource{text: resource.text}
	if validation.IsExpression(name) {
		if strings.Contains(types, "/") {
			return "", false, nil
		}
		name, p.unknownID = unnamed, true
	}
	put := rq.put(s, types, validation.Literal(name), version, resourceGroupOf(rq, fields, p))
	if put.match.route == nil || put.match.route.preflight == nil {
		if s.serves(types) {
			return "", true, apierror.New(apierror.InvalidResourceName, "The resource name %s does not fit the type %s.", wire.FormatValue(name), wire.FormatValue(resourceType))
		}
		return "", false, nil
	}
	for _, stage := range []stage{checkResourceID, readVersion} {
		if err := stage(s, ctx, put); err != nil {
			return put.resourceID, true, err
		}
	}
	err = put.match.route.preflight(s, ctx, put, d, p)
	return put.resourceID, true, err
}

// templateFields are the fields of a resource in a template that the body of its PUT does not have. The URL of the PUT contains the name and type, which have
// another form in a template. ARM does not send the others.
var templateFields = []string{"name", "type", "apiVersion", "asserts", "comments", "condition", "copy", "dependsOn", "existing", "metadata", "resources", "scope"}

// decode decodes the fields of the resource that its PUT will have, and removes those whose values are unknown.
func (p *plannedResource) decode(form *wire.Form) error {
	others := map[string]*wire.Form{}
	for _, name := range templateFields {
		others[name] = wire.Scalar()
	}
	var err error
	if p.fields, err = p.text.Decode(form.With(others)); err != nil {
		return refusedBody(err)
	}
	for _, name := range templateFields {
		delete(p.fields, name)
	}
	p.unknown = validation.ResolveExpressions(p.fields)
	return nil
}

// resourceGroupOf returns the resource group of a resource: the deployment's, or that of the resource's own scope.
func resourceGroupOf(rq *request, fields map[string]any, p *plannedResource) string {
	if group := rq.param(resourceGroupParam); group != "" {
		return group
	}
	parts := strings.Split(strings.Trim(text(fields, "scope"), "/"), "/")
	if len(parts) == 4 && asciifold.Equal(parts[0], "subscriptions") && asciifold.Equal(parts[1], rq.param(subscriptionParam)) && asciifold.Equal(parts[2], "resourceGroups") {
		return parts[3]
	}
	p.unknownID = true
	return unnamed
}

// put returns the request that will create a resource of the deployment, as far as it is known.
func (rq *request) put(s *Server, types, name, version, group string) *request {
	put := *rq
	path := "/subscriptions/" + rq.param(subscriptionParam) + "/resourceGroups/" + url.PathEscape(group) + provider
	names := strings.Split(name, "/")
	for i, part := range strings.Split(types, "/") {
		path += "/" + url.PathEscape(part)
		if i < len(names) {
			path += "/" + url.PathEscape(names[i])
		}
	}
	put.match = match{}
	if u, err := url.Parse(path); err == nil && len(names) == strings.Count(types, "/")+1 {
		put.match = find(s.routes, http.MethodPut, u)
	}
	put.resourceID, put.version, put.systemData = "", nil, nil
	put.query = url.Values{"api-version": {version}}
	return &put
}

// serves reports whether a resource type of the provider, given without its namespace, can be deployed.
func (s *Server) serves(types string) bool {
	var pattern []string
	for _, part := range strings.Split(types, "/") {
		pattern = append(pattern, part, "{}")
	}
	return slices.ContainsFunc(s.routes, func(r *route) bool {
		if r.preflight == nil || len(r.parts) < len(pattern) {
			return false
		}
		tail := len(r.parts) - len(pattern)
		for i, part := range pattern {
			if part != "{}" && !asciifold.Equal(part, r.parts[tail+i]) {
				return false
			}
		}
		return tail > 0 && asciifold.Equal(r.parts[tail-1], hub.ProviderNamespace)
	})
}

// newPreflightCheck returns the check of a resource type.
func newPreflightCheck[D, R any](t resourceType[D, R]) preflightCheck {
	return func(s *Server, ctx context.Context, rq *request, d *deployment, p *plannedResource) error {
		if err := p.decode(rq.version.Form(t.name())); err != nil {
			return err
		}
		proposed := &proposal{content: content{fields: p.fields}, uid: uuid.NewString()}
		unknown := slices.Clone(p.unknown)
		if rq.isChild() {
			parent, inherited, err := d.parent(s, ctx, rq, p)
			if err != nil {
				return err
			}
			proposed.parent, unknown = parent, append(unknown, inherited...)
		}
		found, err := findStored(s, ctx, rq, t, p)
		if err != nil {
			return err
		}
		var document D
		var resource *R
		var violations []apierror.Violation
		now := s.Now().UTC()
		if found != nil {
			document = found.Value
			if resource, violations, err = decodeChanged(s, ctx, rq, t, proposed, &document, now); err != nil {
				return err
			}
		} else {
			if resource, violations, err = decodeNew(s, ctx, rq, t, proposed, t.fields(&document).resource, now); err != nil {
				return err
			}
			*t.fields(&document).uid = proposed.uid
		}
		*t.fields(&document).resource = *resource
		d.add(rq, &document, p)
		if err := apierror.InvalidFields(withoutUnknown(violations, unknown)); err != nil || found != nil {
			return err
		}
		if err := t.allot(s, ctx, rq, &document, d.created[t.name()]); err != nil {
			return err
		}
		d.created[t.name()]++
		return checkReservations(s, ctx, rq, d, t, &document, p)
	}
}

// findStored returns the stored resource, or nil if there is none or its ID is not known.
func findStored[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *plannedResource) (*database.Item[D], error) {
	if p.unknownID || rq.invalidName {
		return nil, nil
	}
	item, err := t.collection(s.Database).Find(ctx, rq.key())
	return live(item), err
}

// parent returns the cluster of a resource: from the deployment, or else from the store. Fields that are unknown in the
// cluster are unknown in the resource too.
func (d *deployment) parent(s *Server, ctx context.Context, rq *request, p *plannedResource) (*database.Item[database.ClusterDocument], validation.Unknown, error) {
	if planned := d.clusters[hub.Key(rq.clusterID())]; planned != nil {
		var inherited validation.Unknown
		for _, field := range []string{"location", "properties.version", "properties.platform.subnetId"} {
			if planned.unknown.Covers(field) {
				inherited = append(inherited, field)
			}
		}
		return &database.Item[database.ClusterDocument]{Value: planned.document}, inherited, nil
	}
	if !p.unknownID && !rq.invalidParent {
		parent, err := s.parent(ctx, rq)
		if parent != nil || err != nil {
			return parent, nil, err
		}
	}
	return nil, nil, notFound(rq.clusterID())
}

// add stores a cluster for the checks of its children.
func (d *deployment) add(rq *request, document any, p *plannedResource) {
	if cluster, ok := document.(*database.ClusterDocument); ok {
		d.clusters[hub.Key(rq.clusterID())] = &plannedCluster{document: *cluster, unknown: p.unknown}
	}
}

// checkReservations returns an error if other stored resources, or others of the deployment, hold reservations that a
// new resource needs.
func checkReservations[D, R any](s *Server, ctx context.Context, rq *request, d *deployment, t resourceType[D, R], document *D, p *plannedResource) error {
	wanted := t.reservations(rq.key(), document)
	var held []database.ReservationDocument
	if !p.unknownID {
		var err error
		if held, err = s.conflictingReservations(ctx, wanted); err != nil {
			return err
		}
	}
	for key, reservation := range wanted {
		if reservation.Kind == database.ClusterQuotaReservation {
			continue // the deployment chooses its slots when it runs
		}
		if other, reserved := d.reserved[key]; reserved && !strings.EqualFold(other.OwnerResourceID, reservation.OwnerResourceID) {
			held = append(held, other)
			continue
		}
		d.reserved[key] = reservation
	}
	if len(held) == 0 {
		return nil
	}
	return t.reservationConflict(document, held)
}

// relatedFields lists groups of fields that rules compare. If one of a group is unknown, violations at the others are
// ignored.
var relatedFields = [][]string{
	{"identity", "properties.platform.operatorsAuthentication"},
	{"properties.network.machineCidr", "properties.network.podCidr", "properties.network.serviceCidr"},
	{"properties.platform.subnetId", "properties.platform.vnetIntegrationSubnetId"},
	{"properties.etcd.dataEncryption", "properties.version"},
	{"properties.version.channelGroup", "tags[" + experiment.ExactVersion + "]", "properties.version.id"},
	{"properties.replicas", "properties.autoScaling"},
	{"properties.platform.availabilityZone", "properties.replicas"},
	{"properties.issuer", "properties.clients"},
	{"properties.claim"},
}

// withoutUnknown returns the violations that do not depend on unknown values.
func withoutUnknown(violations []apierror.Violation, unknown validation.Unknown) []apierror.Violation {
	if len(unknown) == 0 {
		return violations
	}
	fields := unknown
	for _, row := range relatedFields {
		if slices.ContainsFunc(row, unknown.Covers) {
			fields = append(fields, row...)
		}
	}
	return slices.DeleteFunc(violations, func(v apierror.Violation) bool {
		return fields.Covers(v.Field)
	})
}
