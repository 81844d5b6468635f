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
	own, _ := errors.AsType[*failure](err)
	arm, _ := errors.AsType[*armclient.Failed](err)
	admin, _ := errors.AsType[*adminclient.Error](err)
	switch {
	case err == nil:
		return 0
	case own != nil && own.code == exitUsage, is[*armclient.UnknownCredential](err):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case own != nil:
		return own.code
	case is[*management.NotFound](err), errors.Is(err, layer.ErrUnknown), errors.Is(err, document.ErrUnknownKey), armclient.IsNotFound(err), admin != nil && admin.NotFound():
		return exitNotFound
	case is[*armclient.Unreachable](err), is[*login.UnreachableError](err), adminclient.IsRetryable(err), errors.Is(err, control.ErrNotRunning),
		arm != nil && (arm.Status >= http.StatusInternalServerError || arm.Status == http.StatusTooManyRequests):
		return exitUnavailable
	}
	return exitFailed
}

// is reports whether an error is or wraps one of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Message returns the text of a command's error. For an interrupted command it does not name the canceled context.
func Message(err error) string {
	own, _ := errors.AsType[*failure](err)
	if ExitCode(err) != exitInterrupted || own != nil && own.code == exitInterrupted {
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

// failure is an error of a command that determines the exit code.
type failure struct {
	code int
	err  error
}

// Error implements error.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

// Is reports whether the command was interrupted, for target context.Canceled.
func (f *failure) Is(target error) bool {
	return f.code == exitInterrupted && target == context.Canceled
}

// unavailable returns an error for a service, other than admin and Azure Resource Manager, that did not respond.
func unavailable(format string, arguments ...any) error {
	return &failure{exitUnavailable, fmt.Errorf(format, arguments...)}
}

// notFound returns an error for an object that does not exist.
func notFound(format string, arguments ...any) error {
	return &failure{exitNotFound, fmt.Errorf(format, arguments...)}
}

// interrupted returns an error for a command that stopped waiting for something that continues.
func interrupted(format string, arguments ...any) error {
	return &failure{exitInterrupted, fmt.Errorf(format, arguments...)}
}

// invalid returns an error for an invalid command line. Its text names what is wrong, for example a flag.
func invalid(format string, arguments ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, arguments...)}
}

// asUsageError adds the usage of a command to the error of an invalid command line.
func asUsageError(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return invalid("%w\nusage: %s\nsee `%s --help`", err, c.UseLine(), c.CommandPath())
}

// limitArguments makes a command and its subcommands accept the arguments in their usage, unless they check their arguments themselves: a name is required,
// a name in brackets is optional, and one that ends with an ellipsis may be repeated. Flags in a usage follow the arguments.
func limitArguments(c *cobra.Command) {
	for _, child := range c.Commands() {
		limitArguments(child)
	}
	if c.Args != nil || c.HasSubCommands() {
		return
	}
	required, optional, repeated := 0, 0, false
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		name := strings.Trim(word, "[]")
		repeated = repeated || strings.HasSuffix(name, "...") || strings.HasSuffix(name, "…")
		if name == word {
			required++
		} else {
			optional++
		}
	}
	switch {
	case repeated:
		c.Args = cobra.MinimumNArgs(required)
	case required+optional == 0:
		c.Args = cobra.NoArgs
	case optional == 0:
		c.Args = cobra.ExactArgs(required)
	case required == 0:
		c.Args = cobra.MaximumNArgs(optional)
	default:
		c.Args = cobra.RangeArgs(required, required+optional)
	}
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
