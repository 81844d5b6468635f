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

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
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
		"no management cluster has it":       {&management.NotFound{}, 3},
		"a search finds none":                {&notFound{}, 3},
		"nobody answers for ARM":             {fmt.Errorf("creating: %w", &armclient.Unreachable{}), 4},
		"ARM cannot now":                     {&armclient.Failed{Status: http.StatusServiceUnavailable}, 4},
		"ARM wants to be asked later":        {&armclient.Failed{Status: http.StatusTooManyRequests}, 4},
		"admin cannot now":                   {&adminclient.Error{Status: http.StatusServiceUnavailable}, 4},
		"the region does not run":            {notRunning(control.ErrNotRunning), 4},
		"interrupted":                        {fmt.Errorf("asking: %w", context.Canceled), 130},
		"interrupted while it waited":        {&interrupted{"stopped waiting"}, 130},
		"interrupted while nobody answered":  {fmt.Errorf("%w: %w", &armclient.Unreachable{}, context.Canceled), 130},
		"a deadline is no wish of anybody's": {context.DeadlineExceeded, 1},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", reason, got, tc.want)
		}
	}
}

// TestAWrongCommandLineSaysHowItIsRight: whatever is wrong with it, the code says that nothing was asked for, and the text how the
// command is used, or what was meant.
func TestAWrongCommandLineSaysHowItIsRight(t *testing.T) {
	for line, want := range map[string]string{
		"shard show":                          "usage: hcpctl shard show NAME",
		"shard show a b":                      "see `hcpctl shard show --help`",
		"cluster list --grup x":               "usage: hcpctl cluster list",
		"cluster list -o xml":                 "usage: hcpctl cluster list",
		"shard register mgmt-3":               `required flag(s) "capacity"`,
		"nodepool scale demo np --as-sre":     "[replicas max]",
		"nodepool scale c np --min 1 --max 2": "--max requires --as-sre",
		"cluster pause demo --reason late":    "ticket",
		"elevate":                             "--reason and --ticket are required",
		"audit --limit 0":                     "--limit: 0 is not 1 or more",
		"shard shw mgmt-1":                    "did you mean set, show",
		"upgrade policy lst":                  "did you mean list",
		"clusters":                            "did you mean cluster",
		"orphan xyzzy":                        "there are delete, list",
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

// TestEveryCommandCanBeUnderstood: every command says what it does, and every flag what it takes.
func TestEveryCommandCanBeUnderstood(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q is no line of a list of commands", c.CommandPath(), c.Short)
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(New(io.Discard, io.Discard))
}
