package main

import (
	"context"
	"fmt"
	"io"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
)

// previews prints the changes that the steps of a plan would make. A step whose changes cannot be shown has a line with the reason, because
// its cluster may be created by a step before it.
func (s *session) previews(ctx context.Context, out io.Writer, decisions []plan.Decision) error {
	for _, d := range decisions {
		previewer, able := s.planner.Actions[d.Step.Action].(action.Previewer)
		if !able || d.Verdict == plan.Skip || d.Verdict == plan.LeftOut || d.Verdict == plan.Blocked {
			continue
		}
		if !d.Complete() {
			fmt.Fprintf(out, "\n%s: the changes depend on outputs of steps that run first\n", d.ID)
			continue
		}
		r, err := s.planner.Request(d)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s:\n", d.ID)
		if err := previewer.Preview(ctx, r, out); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			fmt.Fprintf(out, "the changes cannot be shown: %s\n", printable(err.Error()))
		}
	}
	return nil
}
