// Package rbac decides as Azure's role-based access control does: a principal may execute an action on a scope if one of its role
// assignments covers the scope and the role permits the action. Everything else is refused.
//
// The emulator puts the verified caller of a request into its context. Each service derives the action and the scope of a request,
// asks an Authorizer, and turns a *Denied into its own form of status 403.
package rbac

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Caller is the principal of a verified token.
type Caller struct {
	ObjectID string
	// Groups lists the IDs of the principal's groups.
	Groups []string
	// emulator marks the emulator itself.
	emulator bool
}

// Emulator returns the caller as which the emulator creates the resources of its seed. It may do everything.
func Emulator() Caller { return Caller{emulator: true} }

// IsEmulator reports whether the caller is the emulator itself.
func (c Caller) IsEmulator() bool { return c.emulator }

// Principals returns the IDs to which the caller's roles are assigned: its own and those of its groups, in lower case.
func (c Caller) Principals() []string {
	var ids []string
	for _, id := range append([]string{c.ObjectID}, c.Groups...) {
		if id != "" {
			ids = append(ids, strings.ToLower(id))
		}
	}
	return ids
}

type callerKey struct{}

// NewContext returns a context with the caller of a request.
func NewContext(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// FromContext returns the caller of a request. The zero Caller, which has no rights, belongs to a context without one.
func FromContext(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}

// Action is an operation that roles permit, for example Microsoft.Network/dnsZones/read.
type Action struct {
	Name string
	// Data reports whether the action is one on the data of a resource, which a role lists in DataActions.
	Data bool
	// Blob is the path of the blob in its container; empty for an action on something else.
	Blob string
}

// condition is the form of the conditions that the emulator evaluates: an action is permitted only on blobs whose path matches a pattern.
var condition = regexp.MustCompile(`^\(\(!\(ActionMatches\{'([^']+)'\}\)\) OR \(@Resource\[Microsoft\.Storage/storageAccounts/blobServices/containers/blobs:path\] StringLike '([^']+)'\)\)$`)

// Evaluates reports whether the emulator evaluates the condition of a role assignment.
func Evaluates(text string) bool { return text == "" || condition.MatchString(text) }

// Satisfies reports whether an action satisfies the condition of a role assignment. No action satisfies a condition that the emulator does not evaluate.
func (a Action) Satisfies(text string) bool {
	form := condition.FindStringSubmatch(text)
	switch {
	case form == nil:
		return text == ""
	case !strings.EqualFold(a.Name, form[1]):
		return true
	}
	pattern := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(form[2]))
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(a.Blob)
}

// Role is a role definition. Its actions may contain the wildcard *, which matches any text.
type Role struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Actions        []string `json:"actions,omitempty"`
	NotActions     []string `json:"notActions,omitempty"`
	DataActions    []string `json:"dataActions,omitempty"`
	NotDataActions []string `json:"notDataActions,omitempty"`
}

// Permits reports whether the role permits an action.
func (r *Role) Permits(action Action) bool {
	granted, excluded := r.Actions, r.NotActions
	if action.Data {
		granted, excluded = r.DataActions, r.NotDataActions
	}
	matches := func(pattern string) bool { return match(strings.ToLower(pattern), strings.ToLower(action.Name)) }
	return slices.ContainsFunc(granted, matches) && !slices.ContainsFunc(excluded, matches)
}

// match reports whether a name matches a pattern with wildcards.
func match(pattern, name string) bool {
	first, rest, wildcard := strings.Cut(pattern, "*")
	if !wildcard {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	for name = name[len(first):]; ; name = name[1:] {
		if match(rest, name) {
			return true
		}
		if name == "" {
			return false
		}
	}
}

// Within reports whether a scope equals outer or is below it. Scopes are compared without case.
func Within(inner, outer string) bool {
	inner, outer = strings.ToLower(inner), strings.ToLower(outer)
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}

// Authorizer returns nil if the caller in ctx may execute an action on a scope, and a *Denied if it may not.
type Authorizer interface {
	Authorize(ctx context.Context, action Action, scope string) error
}

// Denied is the error of a refused request.
type Denied struct {
	Caller Caller
	Action Action
	Scope  string
}

// Error names the principal, the missing right and the scope.
func (d *Denied) Error() string {
	return fmt.Sprintf("The client with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid.",
		d.Caller.ObjectID, d.Action.Name, d.Scope)
}
