package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// content is what a PUT or PATCH says.
type content struct {
	fields map[string]any
	patch  bool
}

// over makes the body that is decoded: for a PUT what was sent; for a PATCH what was sent merged over the resource as the
// request's version shows it (RFC 7396).
func (c content) over(shown any) (*wire.Body, error) {
	if !c.patch {
		return wire.NewBody(c.fields), nil
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("encoding the resource to patch: %w", err)
	}
	fields, err := wire.ParseObject(text)
	if err != nil {
		return nil, fmt.Errorf("decoding the resource to patch: %w", err)
	}
	for _, path := range anyCasing {
		recase(fields, c.fields, path)
	}
	return wire.NewBody(wire.MergePatch(fields, c.fields)), nil
}

// anyCasing are the maps whose keys are the same in any casing: names of tags, and ARM ids.
var anyCasing = [][]string{{"tags"}, {"identity", "userAssignedIdentities"}}

// recase gives the keys of the map at a path of shown the casing in which a patch names them, so that the patch changes and
// removes what is there rather than adding to it. A patch that names a key in two casings is left for validation to refuse.
func recase(shown, patch map[string]any, path []string) {
	for _, name := range path {
		shown, _ = shown[name].(map[string]any)
		patch, _ = patch[name].(map[string]any)
	}
	for key := range patch {
		if _, same := shown[key]; same {
			continue
		}
		for stored, value := range shown {
			if _, named := patch[stored]; !named && strings.EqualFold(stored, key) {
				delete(shown, stored)
				shown[key] = value
				break
			}
		}
	}
}

// checkNames: the name and type in a body may be left out, and must otherwise be those of the URL. What is no text is a
// problem of the body.
func checkNames(body *wire.Body, resource *hub.Resource) []apierror.Violation {
	var wrong []apierror.Violation
	for field, want := range map[string]string{"name": resource.Name, "type": resource.Type} {
		if got := body.String(field, want); !strings.EqualFold(got, want) {
			wrong = append(wrong, apierror.Violation{Field: field,
				Message: fmt.Sprintf("Invalid value: %s: must be %s, as in the URL", wire.FormatValue(got), wire.FormatValue(want))})
		}
	}
	return wrong
}

// combine puts together what was wrong with a body's form and with its values. A field that could not be read is not
// also said to be missing or wrong.
func combine(problems []wire.Problem, violations ...[]apierror.Violation) []apierror.Violation {
	all := slices.Concat(violations...)
	if len(problems) == 0 && len(all) == 0 {
		return nil
	}
	all = slices.DeleteFunc(all, func(v apierror.Violation) bool {
		return slices.ContainsFunc(problems, func(p wire.Problem) bool {
			return validation.Covers(p.Field, v.Field) || validation.Covers(v.Field, p.Field)
		})
	})
	for _, p := range problems {
		all = append(all, apierror.Violation(p))
	}
	validation.Sort(all)
	return slices.Compact(all)
}

// said puts what is wrong with a resource in the words of the request's version: fields where it has them, and nothing of
// those that it cannot say. They are as the service or another version left them, and were judged then.
func (rq *request) said(resourceType string, violations ...[]apierror.Violation) []apierror.Violation {
	var said []apierror.Violation
	for _, v := range slices.Concat(violations...) {
		path, ok := rq.version.Path(resourceType, v.Field)
		if !ok {
			continue
		}
		said = append(said, apierror.Violation{Field: path, Message: v.Message})
	}
	return said
}

// busy refuses a change of a resource that is moving. One that awaits a secret does not move, but waits for its customer,
// who may as well change it.
func busy(state hub.ProvisioningState) error {
	if state.Terminal() || state == hub.AwaitingSecret {
		return nil
	}
	return apierror.New(apierror.Conflict, "Cannot update resource while resource is %s.", strings.ToLower(string(state))).WithRetryAfter(leastPollAfter)
}

// errDeleting refuses a second deletion.
var errDeleting = apierror.New(apierror.Conflict, "Resource is already deleting.").WithRetryAfter(leastPollAfter)

// parentReady refuses a change of a resource while the cluster that it belongs to is coming up or going; parent is nil for
// what belongs to none.
func parentReady(parent *database.Item[database.ClusterDocument]) error {
	if parent == nil {
		return nil
	}
	switch state := parent.Value.ProvisioningState; state {
	case hub.Accepted, hub.Provisioning, hub.Deleting:
		return apierror.New(apierror.Conflict, "Cannot change resource while parent resource is %s.", strings.ToLower(string(state))).WithRetryAfter(leastPollAfter)
	}
	return nil
}

// besideRounds is how often a change that keeps losing to changes of others is retried.
const besideRounds = 6

// retryBeside is database.Retry for a write that is conditioned on a document of that kind for the sake of others: node
// pools that a client creates all at once race with each other for their cluster, clusters for their subscription's
// gates, and each round has at least one winner.
func retryBeside(ctx context.Context, kind database.Kind, decide func(ctx context.Context) error) error {
	for round := 1; ; round++ {
		err := database.Retry(ctx, decide)
		race, lost := database.AsWriteConflict(err)
		if !lost || race.Kind != kind || round == besideRounds {
			return err
		}
	}
}

// live is the item unless there is none or only a tombstone.
func live[T any](item *database.Item[T]) *database.Item[T] {
	if item == nil || item.Removed != nil {
		return nil
	}
	return item
}

// etagOf is the ETag of a live item, or empty.
func etagOf[T any](item *database.Item[T]) string {
	if item == nil {
		return ""
	}
	return item.ETag
}

func notFound(resourceID string) error {
	return apierror.New(apierror.ResourceNotFound, "The resource '%s' was not found.", resourceID).WithTarget(resourceID)
}
