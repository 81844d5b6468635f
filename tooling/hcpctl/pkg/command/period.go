package command

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// period are the flags of commands that show what happened within a time.
type period struct {
	since            time.Duration
	fromText, toText string
	// from and to are the values of the flags; zero for those that are not set.
	from, to time.Time
}

// addFlags adds the flags to a command. from describes the default of the beginning.
func (p *period) addFlags(c *cobra.Command, from string) {
	c.Flags().DurationVar(&p.since, "since", 0, "only the last `duration`, for example 1h")
	c.Flags().StringVar(&p.fromText, "from", "", "beginning of the period, a `time` such as 2026-11-24T01:00:00Z (default "+from+")")
	c.Flags().StringVar(&p.toText, "to", "", "end of the period, a `time` (default now)")
}

// check returns an error for invalid flags. Otherwise it sets the times of the period.
func (p *period) check(now time.Time) (err error) {
	if p.since < 0 {
		return fmt.Errorf("--since: %v is negative", p.since)
	}
	if p.since > 0 && p.fromText != "" {
		return errors.New("--since and --from cannot be combined")
	}
	if p.since > 0 {
		p.from = now.Add(-p.since)
	}
	for _, flag := range []struct {
		name, text string
		value      *time.Time
	}{{"from", p.fromText, &p.from}, {"to", p.toText, &p.to}} {
		if flag.text == "" {
			continue
		}
		if *flag.value, err = time.Parse(time.RFC3339, flag.text); err != nil {
			return fmt.Errorf("--%s: %q is not a time such as 2026-11-24T01:00:00Z", flag.name, flag.text)
		}
	}
	return nil
}
