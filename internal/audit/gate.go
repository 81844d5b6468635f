package audit

import "context"

type actionKey struct{}

// WithAction returns a context with an action that has begun, for BeforeEffect.
func WithAction(ctx context.Context, action Action) context.Context {
	return context.WithValue(ctx, actionKey{}, action)
}

// BeforeEffect waits until the beginning of the action in ctx is durable. It returns an error if the action must not have an effect, and
// nil if ctx has no action. Clients of databases and services call it before they change something.
func BeforeEffect(ctx context.Context) error {
	action, ok := ctx.Value(actionKey{}).(Action)
	if !ok {
		return nil
	}
	return action.Durable(ctx)
}
