package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
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
	var input *invalidInput
	var arm *armclient.Failed
	var admin *adminclient.Error
	var nowhere *armclient.Unreachable
	var missing *management.NotFound
	var nothing *notFound
	var unread *unreadable
	var silent *unreachableServer
	var issuer *login.UnreachableError
	var engineer *armclient.UnknownCredential
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong), errors.As(err, &input), errors.As(err, &engineer):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &missing), errors.As(err, &nothing), errors.Is(err, layer.ErrUnknown), errors.Is(err, document.ErrUnknownKey), armclient.IsNotFound(err), errors.As(err, &admin) && admin.NotFound():
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

// invalidInput reports an invalid command line whose error names what is wrong, for example a flag.
type invalidInput struct{ err error }

// Error implements error.
func (i *invalidInput) Error() string { return i.err.Error() }

// Unwrap returns the cause.
func (i *invalidInput) Unwrap() error { return i.err }

// invalid returns an invalidInput with a formatted text.
func invalid(format string, arguments ...any) error {
	return &invalidInput{fmt.Errorf(format, arguments...)}
}

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

// groupCompletions makes the commands of cobra report unknown words like all others. It adds them, which cobra would do later.
func groupCompletions(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, requireSubcommand
		case "help":
			show := c.Run
			c.RunE = func(c *cobra.Command, args []string) error {
				if topic, rest, err := root.Find(args); err != nil || topic.HasSubCommands() && len(rest) > 0 {
					return requireSubcommand(topic, rest)
				}
				show(c, args)
				return nil
			}
		}
	}
}

// alsoCheck adds a check to those that a command makes before it runs. Its error means that the command line is invalid.
func alsoCheck(c *cobra.Command, check func(c *cobra.Command, args []string) error) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if before != nil {
			if err := before(c, args); err != nil {
				return err
			}
		}
		return check(c, args)
	}
}

// oneOf makes a command line invalid if a flag has a value that is not in a list, and completes the values.
func oneOf(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	alsoCheck(c, func(c *cobra.Command, _ []string) error {
		given := c.Flag(flag)
		if given.Changed && !slices.Contains(values, given.Value.String()) {
			return fmt.Errorf("--%s: %q is not one of %s", flag, given.Value, strings.Join(values, ", "))
		}
		return nil
	})
}

// checkInputFiles returns an error for a flag with an input file that does not exist. The usage of a flag names its value file, and
// begins with output if the command writes the file.
func checkInputFiles(c *cobra.Command) error {
	var missing error
	c.Flags().Visit(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if name != "file" || strings.HasPrefix(usage, "output") || missing != nil {
			return
		}
		if _, err := os.Stat(f.Value.String()); err != nil {
			missing = fmt.Errorf("--%s: %w", f.Name, err)
		}
	})
	return missing
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
		if err == nil {
			err = checkInputFiles(c)
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
