package main

import (
	"context"
	"errors"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// The exit codes of the program.
const (
	exitFailed      = 1
	exitRefused     = 2
	exitUnavailable = 4
	exitInterrupted = 130
)

// inputError means that files, flags or arguments are wrong, or that the rollout must not start. Nothing was changed.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error of a command.
func exitCode(err error) int {
	var refused *inputError
	var locked *state.LockedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &refused):
		return exitRefused
	case errors.As(err, &locked):
		return exitUnavailable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}
