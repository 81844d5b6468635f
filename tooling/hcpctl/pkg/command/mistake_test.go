package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
)

func TestExitCodes(t *testing.T) {
	for reason, tc := range map[string]struct {
		err  error
		want int
	}{
		"nothing went wrong":                 {nil, 0},
		"anything else":                      {errors.New("no luck"), 1},
		"ARM refuses":                        {&armclient.Failed{Status: http.StatusConflict}, 1},
		"admin refuses":                      {&adminclient.Error{Status: http.StatusForbidden}, 1},
		"an operation failed":                {&adminclient.Error{Operation: "o"}, 1},
		"the command line":                   {asUsageError(&cobra.Command{}, errors.New("unknown flag")), 2},
		"ARM has none":                       {fmt.Errorf("reading: %w", &armclient.Failed{Status: http.StatusNotFound}), 3},
		"admin has none":                     {&adminclient.Error{Status: http.StatusNotFound}, 3},
		"an operation's object is missing":   {&adminclient.Error{Operation: "o", Detail: adminv1.FailureDetail{Code: apierror.NotFound.ARMCode()}}, 3},
		"no management cluster has it":       {&management.NotFound{}, 3},
		"a search finds none":                {notFound("no such object"), 3},
		"a checkout has no such target":      {fmt.Errorf("rendering: %w", layer.ErrUnknown), 3},
		"nobody answers for ARM":             {fmt.Errorf("creating: %w", &armclient.Unreachable{}), 4},
		"ARM cannot now":                     {&armclient.Failed{Status: http.StatusServiceUnavailable}, 4},
		"ARM wants to be asked later":        {&armclient.Failed{Status: http.StatusTooManyRequests}, 4},
		"admin cannot now":                   {&adminclient.Error{Status: http.StatusServiceUnavailable}, 4},
		"the region does not run":            {notRunning(control.ErrNotRunning), 4},
		"interrupted":                        {fmt.Errorf("asking: %w", context.Canceled), 130},
		"interrupted while it waited":        {interrupted("stopped waiting"), 130},
		"interrupted while nobody answered":  {fmt.Errorf("%w: %w", &armclient.Unreachable{}, context.Canceled), 130},
		"a deadline is no wish of anybody's": {context.DeadlineExceeded, 1},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", reason, got, tc.want)
		}
	}
}

// TestInterruptedCommandsDoNotNameTheContext checks the messages of commands that a signal ended.
func TestInterruptedCommandsDoNotNameTheContext(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("no luck"), "no luck"},
		{context.Canceled, "interrupted"},
		{fmt.Errorf("operation o continues; see `hcpctl operation get o`: %w", context.Canceled), "interrupted: operation o continues; see `hcpctl operation get o`"},
		{fmt.Errorf("admin is unreachable (%w); check it", context.Canceled), "interrupted"},
		{interrupted("stopped waiting"), "stopped waiting"},
	} {
		if got := Message(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

// TestUsageErrorsShowUsage checks that an invalid command line ends with exitUsage and with the usage of the command or
// suggestions.
func TestUsageErrorsShowUsage(t *testing.T) {
	for line, want := range map[string]string{
		"shard show":                          "usage: hcpctl shard show NAME",
		"shard show a b":                      "see `hcpctl shard show --help`",
		"cluster list --grup x":               "usage: hcpctl cluster list",
		"cluster list -o xml":                 "usage: hcpctl cluster list",
		"shard register mgmt-3":               `required flag(s) "capacity"`,
		"nodepool scale demo np --as-sre":     "[replicas max]",
		"nodepool scale c np --min 1 --max 2": "--max requires --as-sre",
		"cluster pause demo --reason late":    "ticket",
		"access request":                      "required flag(s)",
		"access review one --comment late":    "[justified unjustified]",
		"audit --limit 0":                     "--limit: 0 is less than 1",
		"shard shw mgmt-1":                    "did you mean set, show",
		"upgrade policy lst":                  "did you mean list",
		"clusters":                            "did you mean cluster",
		"orphan xyzzy":                        "available commands: delete, list",
		"break-glass request":                 "usage: hcpctl break-glass request CLUSTER",
		"upgrade start demo 4 --not-before":   "flag needs an argument",
	} {
		root := New(io.Discard, io.Discard)
		root.SetArgs(strings.Fields(line))
		if err := root.ExecuteContext(t.Context()); err == nil || ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("hcpctl %s: code %d, %v; want it to say %q", line, ExitCode(err), err, want)
		}
	}
}

// TestHelpIsComplete checks that every command has a short help without a period, that every command without subcommands has
// examples that parse, and that every flag has a usage.
func TestHelpIsComplete(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: invalid short help %q", c.CommandPath(), c.Short)
		}
		if c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			if command := strings.TrimSpace(line); strings.HasPrefix(command, "hcpctl ") {
				if err := parses(words(command), true); err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), command, err)
				}
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s has no usage", c.CommandPath(), f.Name)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	root := New(io.Discard, io.Discard)
	walk(root)
	for path := range examples {
		if c, _, err := root.Find(strings.Fields(path)[1:]); err != nil || c.CommandPath() != path {
			t.Errorf("examples of unknown command %q", path)
		}
	}
}
