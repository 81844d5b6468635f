package app_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestConsumersMustHaveNames checks the flag --consumers.
func TestConsumersMustHaveNames(t *testing.T) {
	for reason, c := range map[string]struct{ value, want string }{
		"two":      {"mgmt-1,mgmt-2", ""},
		"none":     {"", ""},
		"empty":    {"mgmt-1,", `--consumers: consumer name ""`},
		"space":    {"mgmt-1, mgmt-2", `--consumers: consumer name " mgmt-2"`},
		"wildcard": {"mgmt-1,+", `--consumers: consumer name "+"`},
	} {
		t.Run(reason, func(t *testing.T) {
			var options app.Options
			flags := flag.NewFlagSet("maestro-server", flag.ContinueOnError)
			options.AddFlags(flags)
			arguments := append(audittest.Flags(audittest.Options(t)), "--identity-dir=x", "--mqtt-address=x", "--mqtt-identity-dir=x", "--database-url-file=x", "--consumers="+c.value)
			must.Do(t, flags.Parse(arguments))
			err := options.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q: %v, want %q", c.value, err, c.want)
			}
		})
	}
}
