package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// content is the body of a PUT or PATCH.
type content struct {
	fields map[string]any
	patch  bool
}

// merged returns the body to decode: for a PUT the request's content; for a PATCH the content merged over encoded, the
// stored resource's wire form at the request's version (RFC 7396).
func (c content) merged(encoded any) (map[string]any, error) {
	if !c.patch {
		return c.fields, nil
	}
	text, err := marshal(encoded)
	if err != nil {
		return nil, fmt.Errorf("encoding the resource to patch: %w", err)
	}
	fields, err := wire.ParseObject(text)
	if err != nil {
		return nil, fmt.Errorf("decoding the resource to patch: %w", err)
	}
	if err := wire.DecodeLong(fields, c.fields); err != nil {
		return nil, refusedBody(err)
	}
	for _, path := range caseInsensitiveMaps {
		matchCasing(fields, c.fields, path)
	}
	return wire.MergePatch(fields, c.fields), nil
}

// unknownField returns the violation of a body with a field that the request's version does not have, also one of a later
// version, and nil if there is none. As in the published service, no other rule is then applied.
func unknownField(rq *request, resourceType string, fields map[string]any) []apierror.Violation {
	field := rq.version.UnknownField(resourceType, fields)
	if field == "" {
		return nil
	}
	return []apierror.Violation{rq.unknown(field)}
}

// unknown returns the violation of a field that the request's version does not have.
func (rq *request) unknown(field string) apierror.Violation {
	return apierror.Violation{Field: field, Message: "Unknown field: api-version " + rq.version.Name + " does not have it"}
}

// caseInsensitiveMaps lists the paths of maps whose keys are compared without case: names of tags, and ARM IDs.
var caseInsensitiveMaps = [][]string{{"tags"}, {"identity", "userAssignedIdentities"}}

// matchCasing changes keys of the map at a path of the stored resource to the casing of a patch's keys. The merge then
// changes and removes existing entries instead of adding entries. Validation rejects a patch that has one key in two
// casings.
func matchCasing(stored, patch map[string]any, path []string) {
	for _, name := range path {
		stored, _ = stored[name].(map[string]any)
		patch, _ = patch[name].(map[string]any)
	}
	for key := range patch {
		if _, same := stored[key]; same {
			continue
		}
		for storedKey, value := range stored {
			if !strings.EqualFold(storedKey, key) {
				continue
			}
			if _, inPatch := patch[storedKey]; !inPatch {
				delete(stored, storedKey)
				stored[key] = value
				break
			}
		}
	}
}

// checkNames requires that the optional name and type of a body are those of the URL, in any casing, so that a client can send
// what it read. A value that is not a string is a problem of the body.
func checkNames(body *wire.Body, resource *hub.Resource, nameInURL string) []apierror.Violation {
	var violations []apierror.Violation
	report := func(field, got, want string) {
		violations = append(violations, apierror.Violation{Field: field,
			Message: fmt.Sprintf("Invalid value: %s: must be %s, as in the URL", wire.FormatValue(got), wire.FormatValue(want))})
	}
	if got := body.String("name", nameInURL); !asciifold.Equal(got, nameInURL) {
		report("name", got, nameInURL)
	}
	if got := body.String("type", resource.Type); !asciifold.Equal(got, resource.Type) {
		report("type", got, resource.Type)
	}
	return violations
}

// clearIdentityIDs removes the client and principal IDs from the identities of a body, because responses contain what the
// service has read. It returns a violation for each ID that the service has not read, whatever its value. The violations
// apply to an update; a creation ignores the IDs.
func clearIdentityIDs(identity *hub.Identity, read map[string]hub.UserAssignedIdentity) []apierror.Violation {
	if identity == nil {
		return nil
	}
	var violations []apierror.Violation
	for id, ids := range identity.UserAssigned {
		known := read[hub.Key(id)]
		for field, values := range map[string][2]string{"clientId": {ids.ClientID, known.ClientID}, "principalId": {ids.PrincipalID, known.PrincipalID}} {
			if values[0] != "" && values[1] == "" {
				violations = append(violations, apierror.Violation{Field: "identity.userAssignedIdentities[" + id + "]." + field,
					Message: "Forbidden: the service sets this value"})
			}
		}
		identity.UserAssigned[id] = hub.UserAssignedIdentity{}
	}
	return violations
}

// mergeProblems merges the problems of a body's form with violations of rules. It drops violations at fields that could
// not be decoded. A value that is not supported can be a forbidden change too; other rules of the field do not matter then.
func mergeProblems(problems []wire.Problem, violations ...[]apierror.Violation) []apierror.Violation {
	all := slices.Concat(violations...)
	if len(problems) == 0 && len(all) == 0 {
		return nil
	}
	all = slices.DeleteFunc(all, func(v apierror.Violation) bool {
		return slices.ContainsFunc(problems, func(p wire.Problem) bool {
			if p.Decoded {
				return p.Field == v.Field && v.Message != validation.ImmutableMessage
			}
			return validation.Covers(p.Field, v.Field) || validation.Covers(v.Field, p.Field)
		})
	})
	for _, p := range problems {
		all = append(all, apierror.Violation{Field: p.Field, Message: p.Message})
	}
	validation.Sort(all)
	return slices.Compact(all)
}

// atVersion converts the paths of violations to those of the request's version. It drops violations at fields that the
// version does not have: the service or a request at another version set these values, and they were validated then.
func (rq *request) atVersion(resourceType string, violations ...[]apierror.Violation) []apierror.Violation {
	var said []apierror.Violation
	all := slices.Concat(violations...)
	for _, v := range all {
		path, ok := rq.version.Path(resourceType, v.Field)
		switch {
		case ok:
		case len(all) <= apierror.MaxViolations:
			continue
		default:
			// The rules ended at the limit, so that violations of other fields may be missing: the request must be rejected.
			path = v.Field
		}
		said = append(said, apierror.Violation{Field: path, Message: v.Message})
	}
	return said
}

// checkNotBusy rejects a change of a resource with an operation in progress. It accepts a resource in AwaitingSecret,
// because only its customer can end that state.
func checkNotBusy(state hub.ProvisioningState) error {
	if state.Terminal() || state == hub.AwaitingSecret {
		return nil
	}
	return apierror.New(apierror.Conflict, "Cannot update resource while resource is %s.", strings.ToLower(string(state))).WithRetryAfter(minRetryAfter)
}

// errDeleting is the error for a second deletion.
var errDeleting = apierror.New(apierror.Conflict, "Resource is already deleting.").WithRetryAfter(minRetryAfter)

// checkParentState rejects a change of a child resource while its cluster is being created or deleted. parent is nil
// for a resource without a parent. The cluster's first generation in Accepted is its creation; later ones are updates.
func checkParentState(parent *database.Item[database.ClusterDocument]) error {
	if parent == nil {
		return nil
	}
	state := parent.Value.ProvisioningState
	if state == hub.Provisioning || state == hub.Deleting || state == hub.Accepted && parent.Value.Generation == 1 {
		return apierror.New(apierror.Conflict, "Cannot change resource while parent resource is %s.", strings.ToLower(string(state))).WithRetryAfter(minRetryAfter)
	}
	return nil
}

// maxSharedWriteRetries bounds the attempts of retrySharedWrite.
const maxSharedWriteRetries = 6

// retrySharedWrite is database.Retry with more attempts for a write that also writes a document of the given kind,
// which other requests share: node pools that a client creates at once compete for their cluster, and clusters for a
// fence of their subscription. Each round has at least one winner.
func retrySharedWrite(ctx context.Context, kind database.Kind, decide func(ctx context.Context) error) error {
	for round := 1; ; round++ {
		err := database.Retry(ctx, decide)
		race, lost := database.AsWriteConflict(err)
		if !lost || race.Kind != kind || round == maxSharedWriteRetries {
			return err
		}
	}
}

// live returns item, or nil for a tombstone.
func live[T any](item *database.Item[T]) *database.Item[T] {
	if item == nil || item.Removed != nil {
		return nil
	}
	return item
}

// etagOf returns the ETag of a live item, or the empty string for nil.
func etagOf[T any](item *database.Item[T]) string {
	if item == nil {
		return ""
	}
	return item.ETag
}

func notFound(resourceID string) error {
	return apierror.New(apierror.ResourceNotFound, "The resource '%s' was not found.", resourceID).WithTarget(resourceID)
}
