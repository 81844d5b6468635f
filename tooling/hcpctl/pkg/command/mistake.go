package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
)

// The codes that hcpctl ends with. Scripts go by them, and README has them.
const (
	// exitFailed is for what was asked for and refused, or failed.
	exitFailed = 1
	// exitUsage is for a command line that is wrong: nothing was asked for.
	exitUsage = 2
	// exitNotFound is for what does not exist.
	exitNotFound = 3
	// exitUnavailable is for when nobody answered, or could not now: the same may succeed later.
	exitUnavailable = 4
	// exitInterrupted is what a shell gives a program that was interrupted.
	exitInterrupted = 130
)

// ExitCode is the code to end with after an error of a command; 0 for none.
func ExitCode(err error) int {
	var wrong *usageError
	var arm *armclient.Failed
	var admin *adminclient.Error
	var nowhere *armclient.Unreachable
	var missing *management.NotFound
	var nothing *notFound
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &missing), errors.As(err, &nothing), armclient.IsNotFound(err), errors.As(err, &admin) && admin.Status == http.StatusNotFound:
		return exitNotFound
	case errors.As(err, &nowhere), adminclient.IsRetryable(err), errors.Is(err, control.ErrNotRunning),
		errors.As(err, &arm) && (arm.Status >= http.StatusInternalServerError || arm.Status == http.StatusTooManyRequests):
		return exitUnavailable
	}
	return exitFailed
}

// notFound says that there is none of what was looked for.
type notFound struct{ text string }

// Error says so.
func (n *notFound) Error() string { return n.text }

// interrupted is the error of who stops waiting for what goes on.
type interrupted struct{ text string }

// Error says what goes on.
func (s *interrupted) Error() string { return s.text }

// Unwrap says that it was a wish.
func (s *interrupted) Unwrap() error { return context.Canceled }

// usageError is what is wrong with a command line.
type usageError struct {
	command *cobra.Command
	err     error
}

// Error says what is wrong, and how it is right.
func (u *usageError) Error() string {
	return fmt.Sprintf("%v\nusage: %s\nsee `%s --help`", u.err, u.command.UseLine(), u.command.CommandPath())
}

// Unwrap gives what is wrong.
func (u *usageError) Unwrap() error { return u.err }

func asUsageError(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &usageError{c, err}
}

// wrapUsageErrors has every command below one say how its command line is right when it is wrong.
func wrapUsageErrors(c *cobra.Command) {
	for _, child := range c.Commands() {
		wrapUsageErrors(child)
	}
	if valid := c.Args; valid != nil {
		c.Args = func(c *cobra.Command, args []string) error { return asUsageError(c, valid(c, args)) }
	}
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		// These are cobra's own, which it would look at next, and whose errors cannot be told from those of the command.
		err := c.ValidateRequiredFlags()
		if err == nil {
			err = c.ValidateFlagGroups()
		}
		if err == nil && check != nil {
			err = check(c, args)
		}
		return asUsageError(c, err)
	}
}

// suggestionDistance is by how many letters a command may be misspelt to be recognised.
const suggestionDistance = 2

// requireSubcommand runs a command that only has others below it: without a name it says which there are.
func requireSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	c.SuggestionsMinimumDistance = suggestionDistance
	names := c.SuggestionsFor(args[0])
	hint := "did you mean "
	if len(names) == 0 {
		hint = "there are "
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name())
			}
		}
	}
	return asUsageError(c, fmt.Errorf("unknown command %q for %q; %s", args[0], c.CommandPath(), hint+strings.Join(names, ", ")))
}
