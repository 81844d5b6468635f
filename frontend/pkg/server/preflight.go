package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/template"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Before ARM carries out a deployment it asks the resource provider whether its resources would be accepted. Each one is
// taken through the same route, names, decoding and rules as the PUT that is to come, and through what the store can say
// of it. Only what passes by itself is left out: that a resource or its cluster is moving just now.

// preflightAnswer is the body of every answer; its status is Succeeded or Failed.
type preflightAnswer struct {
	Status string       `json:"status"`
	Error  *errorDetail `json:"error,omitempty"`
}

// maxDeployed is how many resources a deployment may hold, ARM's own limit.
const maxDeployed = 800

// judge says what a PUT of a resource would be refused for; rq is that of the PUT.
type judge func(s *Server, ctx context.Context, rq *request, d *deployment, p *planned) error

// planned is one resource of a deployment.
type planned struct {
	fields map[string]any
	// unknown are the fields whose values are only known once the deployment runs.
	unknown template.Unknown
	// placeless is set when the resource's id is not known, so that the store cannot be asked.
	placeless bool
}

// deployment is what the resources of a deployment need to know of each other.
type deployment struct {
	// clusters that the deployment makes or changes, by their key.
	clusters map[string]*plannedCluster
	// reserved is what they reserve.
	reserved map[database.Key]database.ReservationDocument
}

type plannedCluster struct {
	document database.ClusterDocument
	unknown  template.Unknown
}

// preflight judges a deployment. What is wrong with the deployment is in the body of a 200; another status means that
// it could not be judged.
func (s *Server) preflight(ctx context.Context, rq *request) error {
	refused, err := s.judgeDeployment(ctx, rq)
	if err != nil {
		return err
	}
	if refused == nil {
		return rq.w.json(http.StatusOK, preflightAnswer{Status: "Succeeded"})
	}
	return rq.w.json(http.StatusOK, preflightAnswer{Status: "Failed", Error: refused})
}

// refusal is why one resource of a deployment would be refused.
type refusal struct {
	// target is the resource's id, or where it is in the deployment.
	target string
	err    *apierror.Error
}

func (s *Server) judgeDeployment(ctx context.Context, rq *request) (*errorDetail, error) {
	resources, err := rq.deployed()
	if err != nil {
		detail := rq.describe(apierror.As(err))
		return &detail, nil
	}
	// Clusters first: what belongs to them is judged by them.
	order := slices.SortedStableFunc(maps.Keys(resources), func(a, b int) int {
		if byDepth := depth(resources[a]) - depth(resources[b]); byDepth != 0 {
			return byDepth
		}
		return a - b
	})
	d := &deployment{clusters: map[string]*plannedCluster{}, reserved: map[database.Key]database.ReservationDocument{}}
	ours := 0
	var refusals []refusal
	for _, i := range order {
		target, known, err := s.judgeResource(ctx, rq, d, resources[i])
		if !known {
			continue
		}
		ours++
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
		refusals = append(refusals, refusal{target, e})
	}
	return summary(refusals, ours), nil
}

// summary is the one error of a deployment: of its only resource what the PUT would have answered, of several the same
// for each that is refused, under the id of the resource.
func summary(refusals []refusal, resources int) *errorDetail {
	if len(refusals) == 0 {
		return nil
	}
	if resources == 1 {
		detail := describe(refusals[0].err)
		if detail.Target == "" && len(detail.Details) == 0 {
			detail.Target = refusals[0].target
		}
		return &detail
	}
	all := errorDetail{Code: multipleErrors, Message: "Some resources of the deployment would be refused."}
	for _, r := range refusals {
		detail := describe(r.err)
		own := errorDetail{Code: detail.Code, Message: detail.Message, Target: r.target, Details: detail.Details}
		if detail.Target != "" && len(detail.Details) == 0 && !strings.EqualFold(detail.Target, r.target) {
			own.Details = []errorDetail{detail}
		}
		all.Details = append(all.Details, own)
	}
	return &all
}

// deployed are the resources of the deployment in the request, by where they are in it.
func (rq *request) deployed() (map[int]map[string]any, error) {
	fields, err := rq.object()
	if err != nil {
		return nil, err
	}
	list, ok := fields["resources"].([]any)
	if !ok && fields["resources"] != nil {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "resources", Message: "Invalid value: " + wire.FormatValue(fields["resources"]) + ": must be an array"}})
	}
	if len(list) > maxDeployed {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "resources",
			Message: fmt.Sprintf("Too many: %d: must have at most %d items", len(list), maxDeployed)}})
	}
	resources := make(map[int]map[string]any, len(list))
	var wrong []apierror.Violation
	for i, element := range list {
		resource, ok := element.(map[string]any)
		if !ok {
			wrong = append(wrong, apierror.Violation{Field: fmt.Sprintf("resources[%d]", i), Message: "Invalid value: " + wire.FormatValue(element) + ": must be an object"})
			continue
		}
		resources[i] = resource
	}
	return resources, apierror.InvalidFields(wrong)
}

// text is a field that is a string, or empty.
func text(fields map[string]any, name string) string {
	value, _ := fields[name].(string)
	return value
}

// depth is how many parents a resource has.
func depth(fields map[string]any) int { return strings.Count(text(fields, "type"), "/") }

// unnamed stands for a name or a resource group that is not known.
const unnamed = "unknown"

// judgeResource judges one resource; known is false when it is none of ours, or nothing can be said of it.
func (s *Server) judgeResource(ctx context.Context, rq *request, d *deployment, fields map[string]any) (target string, known bool, err error) {
	resourceType, name, version := text(fields, "type"), text(fields, "name"), text(fields, "apiVersion")
	namespace, types, _ := strings.Cut(resourceType, "/")
	if !strings.EqualFold(namespace, hub.ProviderNamespace) || types == "" || template.IsExpression(version) {
		return "", false, nil
	}
	p := &planned{fields: fields}
	if template.IsExpression(name) {
		if strings.Contains(types, "/") {
			return "", false, nil
		}
		name, p.placeless = unnamed, true
	}
	put := rq.put(s, types, template.Literal(name), version, resourceGroupOf(rq, fields, p))
	if !put.known || put.match.route == nil || put.match.route.judge == nil {
		if s.serves(types) {
			return "", true, apierror.New(apierror.InvalidResourceName, "The resource name %s does not fit the type %s.", wire.FormatValue(name), wire.FormatValue(resourceType))
		}
		return "", false, nil
	}
	for _, stage := range []stage{checkResourceID, readVersion} {
		if err := stage(s, ctx, put); err != nil {
			return "", true, err
		}
	}
	// What the URL of the PUT says; the body need not repeat it, and here it is written in another way.
	for _, name := range []string{"name", "type"} {
		delete(fields, name)
	}
	p.unknown = template.Resolve(fields)
	return put.resourceID, true, put.match.route.judge(s, ctx, put, d, p)
}

// resourceGroupOf is the resource group that a resource goes to: that of the deployment, or of the resource's own scope.
func resourceGroupOf(rq *request, fields map[string]any, p *planned) string {
	if group := rq.param(resourceGroupParam); group != "" {
		return group
	}
	parts := strings.Split(strings.Trim(text(fields, "scope"), "/"), "/")
	if len(parts) == 4 && strings.EqualFold(parts[0], "subscriptions") && strings.EqualFold(parts[1], rq.param(subscriptionParam)) && strings.EqualFold(parts[2], "resourceGroups") {
		return parts[3]
	}
	p.placeless = true
	return unnamed
}

// put is the request that will create a resource of the deployment, as far as it is known.
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
	put.match, put.known = match{}, false
	if u, err := url.Parse(path); err == nil && len(names) == strings.Count(types, "/")+1 {
		put.match, put.known = find(s.routes, http.MethodPut, u)
	}
	put.resourceID, put.version, put.systemData = "", nil, nil
	put.query = url.Values{"api-version": {version}}
	return &put
}

// serves reports whether a type of the provider, without its namespace, can be deployed.
func (s *Server) serves(types string) bool {
	var pattern []string
	for _, part := range strings.Split(types, "/") {
		pattern = append(pattern, part, "{}")
	}
	return slices.ContainsFunc(s.routes, func(r *route) bool {
		if r.judge == nil || len(r.parts) < len(pattern) {
			return false
		}
		tail := len(r.parts) - len(pattern)
		for i, part := range pattern {
			if part != "{}" && !strings.EqualFold(part, r.parts[tail+i]) {
				return false
			}
		}
		return tail > 0 && strings.EqualFold(r.parts[tail-1], hub.ProviderNamespace)
	})
}

// judgement is the judge of a type.
func judgement[D, R any](t resourceType[D, R]) judge {
	return func(s *Server, ctx context.Context, rq *request, d *deployment, p *planned) error {
		proposed := &proposal{content: content{fields: p.fields}, uid: uuid.NewString()}
		unknown := slices.Clone(p.unknown)
		if rq.isChild() {
			parent, inherited, err := d.parent(s, ctx, rq, p)
			if err != nil {
				return err
			}
			proposed.parent, unknown = parent, append(unknown, inherited...)
		}
		found, err := stored(s, ctx, rq, t, p)
		if err != nil {
			return err
		}
		var document D
		var resource *R
		var violations []apierror.Violation
		now := s.Now().UTC()
		if found != nil {
			document = found.Value
			if resource, violations, err = changed(s, rq, t, proposed, &document, now); err != nil {
				return err
			}
		} else {
			if resource, violations, err = fresh(s, ctx, rq, t, proposed, t.parts(&document).resource, now); err != nil {
				return err
			}
			*t.parts(&document).uid = proposed.uid
		}
		*t.parts(&document).resource = *resource
		d.add(rq, &document, p)
		if err := apierror.InvalidFields(knowable(violations, unknown)); err != nil || found != nil {
			return err
		}
		return reservable(s, ctx, rq, d, t, &document, p)
	}
}

// stored reads what is stored of a resource; nil when there is nothing, or nowhere to look.
func stored[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *planned) (*database.Item[D], error) {
	if p.placeless {
		return nil, nil
	}
	item, err := t.collection(s.Database).Find(ctx, rq.key())
	return live(item), err
}

// parent is the cluster of a resource: as the deployment makes it, or else as it is stored. What is not known of it is not
// known of the resource either.
func (d *deployment) parent(s *Server, ctx context.Context, rq *request, p *planned) (*database.Item[database.ClusterDocument], template.Unknown, error) {
	if planned := d.clusters[hub.Key(rq.clusterID())]; planned != nil {
		var inherited template.Unknown
		for _, field := range []string{"location", "properties.version", "properties.platform.subnetId"} {
			if planned.unknown.Covers(field) {
				inherited = append(inherited, field)
			}
		}
		return &database.Item[database.ClusterDocument]{Value: planned.document}, inherited, nil
	}
	if !p.placeless {
		parent, err := s.parent(ctx, rq)
		if parent != nil || err != nil {
			return parent, nil, err
		}
	}
	return nil, nil, notFound(rq.clusterID())
}

// add keeps a cluster for what belongs to it.
func (d *deployment) add(rq *request, document any, p *planned) {
	if cluster, ok := document.(*database.ClusterDocument); ok {
		d.clusters[hub.Key(rq.clusterID())] = &plannedCluster{document: *cluster, unknown: p.unknown}
	}
}

// reservable says what of a new resource others have: other resources that are stored, or others of the deployment.
func reservable[D, R any](s *Server, ctx context.Context, rq *request, d *deployment, t resourceType[D, R], document *D, p *planned) error {
	wanted := t.reservations(rq.key(), document)
	var held []database.ReservationDocument
	if !p.placeless {
		var err error
		if held, err = s.held(ctx, wanted); err != nil {
			return err
		}
	}
	for key, reservation := range wanted {
		if other, taken := d.reserved[key]; taken && !strings.EqualFold(other.OwnerResourceID, reservation.OwnerResourceID) {
			held = append(held, other)
			continue
		}
		d.reserved[key] = reservation
	}
	if len(held) == 0 {
		return nil
	}
	return t.taken(document, held)
}

// together are fields that rules compare: when one of them is not known, nothing is said of the others of its row.
var together = [][]string{
	{"identity", "properties.platform.operatorsAuthentication"},
	{"properties.network.machineCidr", "properties.network.podCidr", "properties.network.serviceCidr"},
	{"properties.platform.subnetId", "properties.platform.vnetIntegrationSubnetId"},
	{"properties.etcd.dataEncryption", "properties.version"},
	{"properties.replicas", "properties.autoScaling"},
	{"properties.platform.availabilityZone", "properties.replicas"},
	{"properties.issuer", "properties.clients"},
	{"properties.claim"},
}

// knowable are the violations that hold whatever the unknown values turn out to be.
func knowable(violations []apierror.Violation, unknown template.Unknown) []apierror.Violation {
	if len(unknown) == 0 {
		return violations
	}
	fields := unknown
	for _, row := range together {
		if slices.ContainsFunc(row, unknown.Covers) {
			fields = append(fields, row...)
		}
	}
	return slices.DeleteFunc(violations, func(v apierror.Violation) bool {
		return fields.Covers(v.Field)
	})
}
