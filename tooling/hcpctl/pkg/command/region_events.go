package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) regionEvents() *cobra.Command {
	var since time.Duration
	c := &cobra.Command{
		Use: "events [PROCESS...]", Short: "List starts, exits, restarts and failed probes of processes", ValidArgsFunction: e.completeProcesses(),
		Long: `List the events of the processes, the oldest first: Started, Ready, NotReady, Hung, Restarting, Exited, Failed.

The supervisor keeps the latest 1000 events. They are available while the region is stopped, too.`,
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, args []string) error {
			events := []local.Event{}
			// The supervisor has them in memory while its disk is full.
			err := control.NewClient(dir).Events(ctx, &events)
			if errors.Is(err, control.ErrNotRunning) {
				events, err = local.Events(dir)
			}
			if err != nil {
				return err
			}
			for _, name := range args {
				if !slices.ContainsFunc(events, func(event local.Event) bool { return event.Process == name }) {
					return notFound("there is no event of a process %q; `hcpctl region status` lists the processes", name)
				}
			}
			now := time.Now()
			events = slices.DeleteFunc(events, func(event local.Event) bool {
				return len(args) > 0 && !slices.Contains(args, event.Process) || since > 0 && now.Sub(event.Time) > since
			})
			return printList(e, events, eventRow)
		}),
	}
	c.Flags().DurationVar(&since, "since", 0, "only events of the last `duration`, for example 10m")
	return e.addOutputFlag(c)
}

func eventRow(event local.Event) display.Row {
	return display.Row{{"TIME", event.Time.UTC().Format(time.RFC3339)}, {"PROCESS", event.Process}, {"EVENT", string(event.Type)}, {"PID", positive(event.Pid)}, {"EXIT", exitOf(event)}, {"MESSAGE", event.Message}}
}

// exitOf returns how a process terminated: the name of a signal or an exit code.
func exitOf(event local.Event) string {
	if event.ExitCode != nil {
		return fmt.Sprint(*event.ExitCode)
	}
	return event.Signal
}
