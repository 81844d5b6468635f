package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
)

// The exit codes of hcpctl. They are part of its interface; the README lists them.
const (
	// exitFailed means that the request was rejected or failed.
	exitFailed = 1
	// exitUsage means that the command line is invalid and nothing was requested.
	exitUsage = 2
	// exitNotFound means that the object does not exist.
	exitNotFound = 3
	// exitUnavailable means that a service is unreachable or unavailable, so that a retry may succeed.
	exitUnavailable = 4
	// exitInterrupted is the exit code that shells use for a program that SIGINT terminated.
	exitInterrupted = 130
)

// ExitCode returns the exit code for the error of a command; 0 for nil.
func ExitCode(err error) int {
	var wrong *usageError
	var arm *armclient.Failed
	var admin *adminclient.Error
	var nowhere *armclient.Unreachable
	var missing *management.NotFound
	var nothing *notFound
	var unread *unreadable
	var silent *unreachableServer
	var issuer *login.UnreachableError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &missing), errors.As(err, &nothing), errors.Is(err, layer.ErrUnknown), armclient.IsNotFound(err), errors.As(err, &admin) && admin.NotFound():
		return exitNotFound
	case errors.As(err, &nowhere), errors.As(err, &unread), errors.As(err, &silent), errors.As(err, &issuer), adminclient.IsRetryable(err), errors.Is(err, control.ErrNotRunning),
		errors.As(err, &arm) && (arm.Status >= http.StatusInternalServerError || arm.Status == http.StatusTooManyRequests):
		return exitUnavailable
	}
	return exitFailed
}

// Message returns the text of a command's error. For an interrupted command it does not name the canceled context.
func Message(err error) string {
	var stopped *interrupted
	if ExitCode(err) != exitInterrupted || errors.As(err, &stopped) {
		return err.Error()
	}
	text := strings.TrimSuffix(err.Error(), context.Canceled.Error())
	if text == err.Error() || strings.Contains(text, context.Canceled.Error()) {
		return "interrupted"
	}
	if text = strings.TrimRight(text, ": "); text == "" {
		return "interrupted"
	}
	return "interrupted: " + text
}

// unreachableServer reports that a server other than admin and Azure Resource Manager did not respond.
type unreachableServer struct {
	name string
	err  error
	hint string
}

// Error implements error.
func (u *unreachableServer) Error() string {
	return fmt.Sprintf("reading from %s: %v; %s", u.name, u.err, u.hint)
}

// Unwrap returns the cause.
func (u *unreachableServer) Unwrap() error { return u.err }

// notFound reports that no object matches.
type notFound struct{ text string }

// Error implements error.
func (n *notFound) Error() string { return n.text }

// interrupted reports that hcpctl stopped waiting for something that continues.
type interrupted struct{ text string }

// Error implements error.
func (s *interrupted) Error() string { return s.text }

// Unwrap returns context.Canceled.
func (s *interrupted) Unwrap() error { return context.Canceled }

// usageError reports an invalid command line.
type usageError struct {
	command *cobra.Command
	err     error
}

// Error returns the cause and the usage of the command.
func (u *usageError) Error() string {
	return fmt.Sprintf("%v\nusage: %s\nsee `%s --help`", u.err, u.command.UseLine(), u.command.CommandPath())
}

// Unwrap returns the cause.
func (u *usageError) Unwrap() error { return u.err }

func asUsageError(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &usageError{c, err}
}

// wrapUsageErrors makes a command and its subcommands report invalid command lines with their usage.
func wrapUsageErrors(c *cobra.Command) {
	for _, child := range c.Commands() {
		wrapUsageErrors(child)
	}
	if valid := c.Args; valid != nil {
		c.Args = func(c *cobra.Command, args []string) error { return asUsageError(c, valid(c, args)) }
	}
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		// Cobra would validate these next, with errors that cannot be distinguished from those of the command.
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

// suggestionDistance is the maximum edit distance of suggested commands.
const suggestionDistance = 2

// requireSubcommand runs a command that only has subcommands: it prints the help, or an error with suggestions.
func requireSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	c.SuggestionsMinimumDistance = suggestionDistance
	names := c.SuggestionsFor(args[0])
	hint := "did you mean "
	if len(names) == 0 {
		hint = "available commands: "
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name())
			}
		}
	}
	return asUsageError(c, fmt.Errorf("unknown command %q for %q; %s", args[0], c.CommandPath(), hint+strings.Join(names, ", ")))
}
