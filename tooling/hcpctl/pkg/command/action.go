package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// requestFunc sends the request of a command to admin.
type requestFunc func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error)

// justification is the reason and the ticket of an SRE. With both, the command creates an elevation for its request and ends it
// when the operation has ended. Without them it uses an elevation that exists.
type justification struct {
	reason, ticket string
	emergency      bool
}

func (b *justification) add(c *cobra.Command) {
	c.Flags().StringVar(&b.reason, "reason", "", "`text` with the reason, at least 8 characters; with --ticket it elevates for this command only")
	addTicket(c, &b.ticket)
	c.Flags().BoolVar(&b.emergency, "emergency", false, "do not wait for an approval; an alert pages, and another engineer must review it")
	c.MarkFlagsRequiredTogether("reason", "ticket")
}

const (
	// elevationDuration limits an elevation for one command whose end cannot be sent. The backend executes an action only while its
	// elevation is active, and retries transient failures for 10 minutes.
	elevationDuration = 15 * time.Minute
	// elevationEndTimeout bounds the request that ends it.
	elevationEndTimeout = 10 * time.Second
)

// withElevation calls do with an elevation of its own if a reason is given, else with the elevations that the caller has. It ends
// its own elevation after do, unless do returns an operation that has not ended: that one is executed only while the elevation is
// active.
func (e *environment) withElevation(ctx context.Context, client *adminclient.Client, class adminv1.AccessClass, why justification, do func(context.Context) (*adminv1.Operation, error)) (*adminv1.Operation, error) {
	elevation, err := e.elevateFor(ctx, client, class, "", why, elevationDuration)
	if err != nil {
		return nil, err
	}
	operation, err := do(ctx)
	switch {
	case elevation == nil:
	case operation != nil && !operation.State.Terminal():
		e.printElevationLasts(elevation)
	default:
		e.endElevation(ctx, client, elevation)
	}
	return operation, err
}

// elevateFor creates an active elevation if a reason is given; else it returns nil. cluster limits the elevation; empty means the
// whole region. If the access policy requires an approval, it waits for that, and withdraws the request if it cannot wait on.
func (e *environment) elevateFor(ctx context.Context, client *adminclient.Client, class adminv1.AccessClass, cluster string, why justification, duration time.Duration) (*adminv1.Elevation, error) {
	switch {
	case why.reason == "" && why.emergency:
		return nil, invalid("--emergency requires --reason and --ticket")
	case why.reason == "":
		return nil, nil
	}
	elevation, err := client.Elevate(ctx, adminv1.ElevationRequest{
		Class: class, Cluster: cluster, Reason: why.reason, Ticket: why.ticket, Duration: duration.String(), Emergency: why.emergency,
	})
	if err != nil {
		return nil, err
	}
	active, err := e.awaitActive(ctx, client, elevation)
	if err != nil {
		e.endElevation(ctx, client, elevation)
		return nil, err
	}
	return active, nil
}

// awaitActive waits until another engineer has decided about a request, and activates it.
func (e *environment) awaitActive(ctx context.Context, client *adminclient.Client, elevation *adminv1.Elevation) (*adminv1.Elevation, error) {
	if elevation.State == adminv1.ElevationActive {
		return elevation, nil
	}
	if elevation.State == adminv1.ElevationRequested {
		e.printWaitsForApproval(elevation)
	}
	decided, err := client.AwaitDecision(ctx, elevation)
	switch {
	case err != nil:
		return nil, err
	case decided.State == adminv1.ElevationApproved:
		return client.ActivateElevation(ctx, decided.ID)
	case decided.State == adminv1.ElevationDenied && decided.Decision != nil:
		return nil, fmt.Errorf("%s denied the request %s: %s", decided.Decision.Name, decided.ID, decided.Decision.Reason)
	case decided.State == adminv1.ElevationActive:
		return decided, nil
	}
	return nil, fmt.Errorf("the request %s is %s", decided.ID, decided.State)
}

// printWaitsForApproval prints how another engineer approves a request.
func (e *environment) printWaitsForApproval(elevation *adminv1.Elevation) {
	fmt.Fprintf(e.err, "the request %s waits for the approval of another engineer until %s: `hcpctl access approve %s --reason TEXT`\n",
		elevation.ID, elevation.RequestExpirationTime.Local().Format(time.TimeOnly), elevation.ID)
}

// printElevationLasts prints until when an elevation lasts that the command does not end.
func (e *environment) printElevationLasts(elevation *adminv1.Elevation) {
	fmt.Fprintf(e.err, "your elevation %s lasts until %s; `hcpctl access end %s` ends it\n", elevation.ID, until(elevation), elevation.ID)
}

// until returns the local time at which an elevation, or the request for one, expires.
func until(elevation *adminv1.Elevation) string {
	if elevation.ExpirationTime == nil {
		return elevation.RequestExpirationTime.Local().Format(time.TimeOnly)
	}
	return elevation.ExpirationTime.Local().Format(time.TimeOnly)
}

// endElevation ends an elevation, also for an interrupted command.
func (e *environment) endElevation(ctx context.Context, client *adminclient.Client, elevation *adminv1.Elevation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), elevationEndTimeout)
	defer cancel()
	if _, err := client.EndElevation(ctx, elevation.ID); err != nil {
		fmt.Fprintf(e.err, "warning: elevation %s could not be ended and lasts until %s: %v\n", elevation.ID, until(elevation), err)
	}
}

// addActions adds the commands that package adminv1 declares to their groups.
func (e *environment) addActions(root *cobra.Command) {
	for _, a := range adminv1.Actions() {
		if a.Command.Use == "" {
			continue
		}
		c := e.actionCommand(&a)
		group, _, _ := root.Find(strings.Fields(a.Command.Group))
		if group.ContainsGroup(forSREs) {
			c.GroupID = forSREs
		}
		group.AddCommand(c)
	}
}

// actionCommand returns the command of an action.
func (e *environment) actionCommand(a *adminv1.Action) *cobra.Command {
	sentence, _, _ := strings.Cut(strings.TrimSuffix(a.Summary, "."), ". ")
	c := &cobra.Command{Use: a.Command.Use, Short: cmp.Or(a.Command.Short, sentence), Long: a.Command.Long, Example: exampleText(a.Command.Examples)}
	inPath := adminv1.Wildcards(a.Path)
	values := map[string]any{}
	var arguments []adminv1.Field
	for _, f := range a.Fields {
		switch {
		case f.Flag != "":
			values[f.Name] = addFlag(c, f)
		case !slices.Contains(inPath, f.Name):
			arguments = append(arguments, f)
		}
	}
	return e.requestWith(c, classOf(a.Name), func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		path, rest := slices.Clone(args[:len(inPath)]), args[len(inPath):]
		for i, f := range arguments {
			values[f.Name] = rest[i]
			if f.Kind == adminv1.FieldList {
				values[f.Name] = rest[i:]
			}
		}
		body, err := a.Content(values)
		if err != nil {
			return nil, err
		}
		if slices.Contains(inPath, "upgrade") {
			u, err := upgradeInProgress(ctx, client, path[0])
			if err != nil {
				return nil, err
			}
			path[0] = u.GetUid()
		}
		return client.Act(ctx, a.Name, body, path...)
	}, func(operation *adminv1.Operation) error { return e.printAction(a, operation) })
}

// addFlag adds the flag of a field to a command, and returns a pointer to its value.
func addFlag(c *cobra.Command, f adminv1.Field) (value any) {
	switch flags := c.Flags(); f.Kind {
	case adminv1.FieldNumber:
		value = flags.Int32(f.Flag, 0, f.Usage)
	case adminv1.FieldCheck:
		value = flags.Bool(f.Flag, false, f.Usage)
	case adminv1.FieldList:
		value = flags.StringSlice(f.Flag, nil, f.Usage)
	case adminv1.FieldArea:
		value = flags.StringArray(f.Flag, []string{}, f.Usage)
	case adminv1.FieldLabels:
		value = flags.StringToString(f.Flag, nil, f.Usage)
	default:
		value = flags.String(f.Flag, f.Default, f.Usage)
	}
	if !f.Optional && f.Default == "" {
		_ = c.MarkFlagRequired(f.Flag)
	}
	return value
}

// printAction prints the result of an action that succeeded: that of its kind, or else the description of its effect.
func (e *environment) printAction(a *adminv1.Action, operation *adminv1.Operation) error {
	switch a.Name {
	case adminv1.ActionDeletionRetry:
		return e.printRetriedDeletion(operation)
	case adminv1.ActionDriftReconcile:
		return e.printReconciled(operation)
	case adminv1.ActionDeletionRelease:
		return printResult(e, operation, e.printReleasedStep)
	case adminv1.ActionDeletionForce:
		return printResult(e, operation, e.printForcedStep)
	case adminv1.ActionUpgradePause, adminv1.ActionUpgradeResume, adminv1.ActionUpgradeAbort, adminv1.ActionUpgradeAcknowledge:
		return printResult(e, operation, e.printUpgrade)
	case adminv1.ActionShardRegister, adminv1.ActionShardDeregister:
		return printResult(e, operation, e.printShard)
	case adminv1.ActionShardDrain:
		return printResult(e, operation, e.drainPlan)
	}
	if a.Command.Done != "" {
		_, err := fmt.Fprintf(e.out, a.Command.Done+"\n", operation.Target.ID)
		return err
	}
	if text := adminclient.Effect(operation); text != "" {
		_, err := fmt.Fprintln(e.out, text)
		return err
	}
	return e.printDone(operation)
}

// printDone prints that an operation succeeded.
func (e *environment) printDone(operation *adminv1.Operation) error {
	_, err := fmt.Fprintln(e.out, operation.Action+" succeeded")
	return err
}

// printResult prints the message of Cluster Service in the result of an operation with show.
func printResult[M proto.Message](e *environment, operation *adminv1.Operation, show func(M) error) error {
	answer, err := adminclient.Result[M](operation)
	switch {
	case errors.Is(err, adminclient.ErrNoResult):
		return e.printDone(operation)
	case err != nil:
		return err
	}
	return show(answer)
}

// requestAndShow completes the command of an action whose flags depend on each other, or that has several commands: it sends the request to admin, waits for
// the operation and shows it. The arguments of the command are the values of the wildcards of the action's path.
func (e *environment) requestAndShow(c *cobra.Command, action string, body func() any, show func(*adminv1.Operation) error) *cobra.Command {
	return e.requestWith(c, classOf(action), func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.Act(ctx, action, body(), args...)
	}, show)
}

// classOf returns a function that returns the class of an action.
func classOf(action string) func() adminv1.AccessClass {
	return func() adminv1.AccessClass { return adminv1.ClassOf(action) }
}

// requestWith is requestAndShow for commands whose class depends on their flags, or whose request needs more than their arguments.
func (e *environment) requestWith(c *cobra.Command, class func() adminv1.AccessClass, ask requestFunc, show func(*adminv1.Operation) error) *cobra.Command {
	var noWait bool
	var why justification
	c.RunE = with(e.adminClient, func(ctx context.Context, client *adminclient.Client, args []string) error {
		operation, err := e.withElevation(ctx, client, class(), why, func(ctx context.Context) (*adminv1.Operation, error) {
			operation, err := ask(ctx, client, args)
			if err != nil || noWait {
				return operation, err
			}
			return client.Await(ctx, operation)
		})
		if err != nil {
			return err
		}
		if noWait {
			return e.printAs(operation, func() error {
				_, err := fmt.Fprintln(e.out, "operation "+operation.ID)
				return err
			})
		}
		return e.printAs(operation, func() error { return show(operation) })
	})
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the operation is accepted")
	why.add(c)
	e.addOutputFlag(c)
	e.addAdminFlags(c)
	if !strings.Contains(c.Long, "requires the role") {
		c.Long += fmt.Sprintf("\n\nIt requires the role %s: give --reason and --ticket, or run 'hcpctl access request --class %s' before.", class().Role(), class())
	}
	return c
}
