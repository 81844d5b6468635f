package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
)

func (e *environment) forgetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "forget REGION NAME...", Short: "Forget the successes of steps, so that the next rollout runs them", Args: cobra.MinimumNArgs(2),
		Long: `Forget the successes of steps, so that the next rollout runs them. Use it if what the steps deployed was lost, for example with a
cluster: rollout does not notice that. Then a step without a change would be skipped.

NAME is GROUP, which includes the children of the group, or GROUP/STEP. GROUP@STAMP and GROUP@STAMP/STEP name those of one stamp. The command
changes only the state: nothing is deployed or deleted.`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := e.session(args[0])
			if err != nil {
				return err
			}
			selected, err := plan.Select(s.instances, args[1:])
			if err != nil {
				return &inputError{err}
			}
			forgotten, err := s.forget(selected)
			if err != nil {
				return err
			}
			return printForgotten(c.OutOrStdout(), forgotten, e.output)
		},
	}
	e.addFlags(c)
	return c
}

// forget deletes the records of instances under the locks, and returns the IDs of those that had one.
func (s *session) forget(instances []*plan.Instance) (forgotten []string, err error) {
	release, err := s.lockFor(instances)
	defer release()
	if err != nil {
		return nil, err
	}
	forgotten = []string{}
	for _, instance := range instances {
		store := s.storeOf(instance)
		if _, found := store.Step(instance.ID); !found {
			continue
		}
		if err := store.Delete(instance.ID); err != nil {
			return forgotten, err
		}
		forgotten = append(forgotten, instance.ID)
	}
	return forgotten, nil
}

func printForgotten(out io.Writer, forgotten []string, format string) error {
	if format == "json" {
		return printJSON(out, struct {
			Forgotten []string `json:"forgotten"`
		}{forgotten})
	}
	for _, id := range forgotten {
		if _, err := fmt.Fprintf(out, "forgotten  %s\n", id); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d steps will run in the next rollout\n", len(forgotten))
	return err
}
