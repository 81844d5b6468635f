// Package infrastructure holds the action Infrastructure, which applies a scope of the templates for Azure with OpenTofu.
package infrastructure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// Infrastructure applies scopes.
type Infrastructure struct {
	Configuration *deployment.Configuration
	Options       tofu.ScopeOptions
	// Authorities are the certificates of the authorities of MQTT clients in PEM, by name, for the scope region.
	Authorities map[string]string
	// Allowed are the addresses of resources with data that may be deleted, by step.
	Allowed map[string][]string
	// Adopt adds resources to the state that exist under the names of the templates.
	Adopt bool
}

// The outputs of the action.
const (
	// Result is the output of the scope as a JSON object.
	Result = "result"
	// ClientIDs are the client IDs of the scope's managed identities by name, as a JSON object.
	ClientIDs = "clientIds"
	// ObjectIDs are the object IDs of their principals.
	ObjectIDs = "objectIds"
	// EgressAddresses are the public addresses of the scope's cluster, from which servers see its connections, as a JSON array.
	EgressAddresses = "egressAddresses"
)

type parameters struct {
	Scope string `json:"scope"`
	// Outer are the results of the outer scopes by their names.
	Outer map[tofu.Scope]string `json:"outer"`
}

// Run applies the scope. A plan that deletes data is refused unless each deletion is allowed.
func (a Infrastructure) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	w, plan, err := a.planned(ctx, r, false, r.Log)
	if err != nil {
		return nil, err
	}
	if len(plan.Pending()) > 0 {
		if err := tofu.Apply(ctx, w, plan, a.Allowed[r.Step], a.Adopt); err != nil {
			return nil, classified(ctx, refused(r.Step, err))
		}
	}
	result, err := w.Outputs(ctx)
	if err != nil {
		return nil, classified(ctx, err)
	}
	outputs := map[string]string{Result: string(result)}
	for output, key := range map[string]string{ClientIDs: "clientId", ObjectIDs: "principalId"} {
		if outputs[output], err = identities(result, key); err != nil {
			return nil, fmt.Errorf("%s: reading the result: %w", r.Step, err)
		}
	}
	if outputs[EgressAddresses], err = egressAddresses(result); err != nil {
		return nil, fmt.Errorf("%s: reading the result: %w", r.Step, err)
	}
	maps.DeleteFunc(outputs, func(name, _ string) bool { return !slices.Contains(r.Outputs, name) })
	return outputs, nil
}

// Content returns the hash of the variables. The results of outer scopes are not part of it, because they are inputs.
func (a Infrastructure) Content(r action.Request) (map[string]string, error) {
	_, _, values, err := a.variables(r)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return map[string]string{"the configuration of the infrastructure": hex.EncodeToString(sum[:])}, nil
}

// Preview writes the changes of the plan, one in each line.
func (a Infrastructure) Preview(ctx context.Context, r action.Request, out io.Writer) error {
	_, _, err := a.planned(ctx, r, false, out)
	return err
}

// Delete deletes all resources of the scope. A plan that deletes data is refused unless each deletion is allowed.
func (a Infrastructure) Delete(ctx context.Context, r action.Request) error {
	w, plan, err := a.planned(ctx, r, true, r.Log)
	if err != nil || len(plan.Pending()) == 0 {
		return err
	}
	if err := w.Apply(ctx); err != nil {
		return classified(ctx, err)
	}
	return nil
}

// PreviewDeletion writes the resources of the scope.
func (a Infrastructure) PreviewDeletion(ctx context.Context, r action.Request, out io.Writer) error {
	_, _, err := a.planned(ctx, r, true, out)
	return err
}

// planned stores a plan, that of the deletion of the scope with destroy, and writes its changes to out, one in each line. It returns a *LossError unless each
// deletion of data is allowed.
func (a Infrastructure) planned(ctx context.Context, r action.Request, destroy bool, out io.Writer) (*tofu.Workspace, *tofu.Plan, error) {
	w, plan, err := a.plan(ctx, r, destroy)
	if err != nil {
		return nil, nil, classified(ctx, err)
	}
	for _, change := range plan.Pending() {
		fmt.Fprintln(out, strings.Join(change.Change.Actions, "+"), change.Address)
	}
	allowed := a.Allowed[r.Step]
	if destroy { // an interrupted deletion can have deleted some of them
		remaining := plan.Loss()
		allowed = slices.DeleteFunc(slices.Clone(allowed), func(address string) bool { return !slices.Contains(remaining, address) })
	}
	return w, plan, refused(r.Step, plan.Check(allowed))
}

// plan prepares the scope and stores a plan, that of its deletion with destroy.
func (a Infrastructure) plan(ctx context.Context, r action.Request, destroy bool) (*tofu.Workspace, *tofu.Plan, error) {
	with, target, values, err := a.variables(r)
	if err != nil {
		return nil, nil, err
	}
	scope := tofu.Scope(with.Scope)
	outer := map[tofu.Scope]json.RawMessage{}
	for name, text := range with.Outer {
		if !json.Valid([]byte(text)) {
			return nil, nil, fmt.Errorf("%s: outer.%s: is not JSON", r.Step, name)
		}
		outer[name] = json.RawMessage(text)
	}
	if err := values.SetOuter(scope, outer); err != nil {
		return nil, nil, err
	}
	w, err := tofu.OpenScope(ctx, scope, target, values, a.Options, r.Log)
	if err != nil {
		return nil, nil, err
	}
	plan, err := w.Plan(ctx, destroy, true)
	return w, plan, err
}

// variables returns the variables of the scope without those of outer scopes.
func (a Infrastructure) variables(r action.Request) (parameters, layer.Target, *tofu.Variables, error) {
	var with parameters
	if err := action.Decode(r, &with); err != nil {
		return with, nil, nil, err
	}
	scope, err := tofu.ParseScope(with.Scope)
	if err != nil {
		return with, nil, nil, fmt.Errorf("%s: %w", r.Step, err)
	}
	target := r.Target
	if scope == tofu.Global && target.Level() == layer.Environment {
		regions := a.Configuration.Tree.At(layer.Region, target)
		if len(regions) == 0 {
			return with, nil, nil, fmt.Errorf("%s: %s has no regions", r.Step, target)
		}
		target = regions[0] // the scope has the same result for each of them
	}
	values, err := tofu.NewVariables(a.Configuration, scope, target)
	if err != nil {
		return with, nil, nil, err
	}
	if scope == tofu.Region {
		values.MQTTAuthorities = a.Authorities
	}
	return with, target, values, nil
}

// identities returns an ID of all identities in a result, by their names. They are the objects with a name and the key of the ID.
func identities(result json.RawMessage, key string) (string, error) {
	if len(result) == 0 {
		return "{}", nil
	}
	var value any
	if err := json.Unmarshal(result, &value); err != nil {
		return "", err
	}
	ids := map[string]string{}
	var visit func(any)
	visit = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			name, named := value["name"].(string)
			if id, has := value[key].(string); named && has {
				ids[name] = id
			}
			for _, field := range value {
				visit(field)
			}
		case []any:
			for _, item := range value {
				visit(item)
			}
		}
	}
	visit(value)
	text, err := json.Marshal(ids)
	return string(text), err
}

// egressAddresses returns the egress addresses in a result. A scope without a cluster has none.
func egressAddresses(result json.RawMessage) (string, error) {
	cluster := struct {
		EgressAddresses []string `json:"egressAddresses"`
	}{[]string{}}
	if len(result) > 0 {
		if err := json.Unmarshal(result, &cluster); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(cluster.EgressAddresses)
	return string(text), err
}

// LossError reports deletions of data that nobody allowed.
type LossError struct {
	Step      string
	Addresses []string
}

// Error lists the addresses with the flag that allows each.
func (e *LossError) Error() string {
	all := []string{"the plan deletes data; nothing was applied:"}
	for _, address := range e.Addresses {
		all = append(all, fmt.Sprintf("  %s (allow with --allow-deletion '%s:%s')", address, e.Step, address))
	}
	return strings.Join(all, "\n")
}

// refused names the flag of rollout in the error of a plan that deletes data.
func refused(step string, err error) error {
	var loss *tofu.LossError
	if errors.As(err, &loss) {
		return &LossError{step, loss.Addresses}
	}
	return err
}

// status is the HTTP status of a response in the errors of the provider.
var status = regexp.MustCompile(`RESPONSE (\d{3})`)

// classified returns an error with its class. An error may be repeated only if all responses in it may.
func classified(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	var class action.Class
	for _, match := range status.FindAllStringSubmatch(err.Error(), -1) {
		code, _ := strconv.Atoi(match[1])
		if class = action.ClassOfStatus(code); class == action.ClassFailed {
			return err
		}
	}
	var exists *tofu.ExistsError
	if class == "" || errors.As(err, &exists) {
		return err
	}
	return &action.Error{Class: class, Err: err}
}
