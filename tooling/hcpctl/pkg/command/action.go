package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// requestFunc sends the request of a command to admin.
type requestFunc func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error)

// bodyFunc returns the body of a request from the arguments of a command that are not in the path of the action.
type bodyFunc func(args []string) any

// justification is the reason and the ticket of an SRE. With both, the command creates an elevation for its request and ends it
// when the operation has ended. Without them it uses an elevation that exists.
type justification struct {
	reason, ticket string
	emergency      bool
}

func (b *justification) add(c *cobra.Command) {
	c.Flags().StringVar(&b.reason, "reason", "", "`text` with the reason, at least 8 characters; with --ticket it elevates for this command only")
	c.Flags().StringVar(&b.ticket, "ticket", "", "`ID` of the incident or change")
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

// requestAction completes the command of an action: it sends the request to admin, waits for the operation and prints its effect. The first arguments of
// the command are the values of the wildcards of the action's path. body may be nil.
func (e *environment) requestAction(c *cobra.Command, action string, body bodyFunc) *cobra.Command {
	return e.requestAndShow(c, action, body, func(operation *adminv1.Operation) error {
		if text := adminclient.Effect(operation); text != "" {
			_, err := fmt.Fprintln(e.out, text)
			return err
		}
		return e.printDone(operation)
	})
}

// printDone prints that an operation succeeded.
func (e *environment) printDone(operation *adminv1.Operation) error {
	_, err := fmt.Fprintln(e.out, operation.Action+" succeeded")
	return err
}

// requestResult is requestAction for operations with a message of Cluster Service as the result, which show prints.
func requestResult[M proto.Message](e *environment, c *cobra.Command, action string, body bodyFunc, show func(M) error) *cobra.Command {
	return e.requestAndShow(c, action, body, resultPrinter(e, show))
}

// resultPrinter returns a function that decodes the result of an operation and prints it with show.
func resultPrinter[M proto.Message](e *environment, show func(M) error) func(*adminv1.Operation) error {
	return func(operation *adminv1.Operation) error {
		answer, err := adminclient.Result[M](operation)
		switch {
		case errors.Is(err, adminclient.ErrNoResult):
			return e.printDone(operation)
		case err != nil:
			return err
		}
		return show(answer)
	}
}

// requestAndShow is requestAction for operations that show prints.
func (e *environment) requestAndShow(c *cobra.Command, action string, body bodyFunc, show func(*adminv1.Operation) error) *cobra.Command {
	inPath := len(adminv1.Wildcards(adminv1.FindAction(action).Path))
	return e.requestWith(c, classOf(action), func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		if body == nil {
			return client.Act(ctx, action, nil, args...)
		}
		return client.Act(ctx, action, body(args[inPath:]), args[:inPath]...)
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
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := e.adminClient()
		if err != nil {
			return err
		}
		operation, err := e.withElevation(c.Context(), client, class(), why, func(ctx context.Context) (*adminv1.Operation, error) {
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
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return once the operation is accepted")
	why.add(c)
	e.addOutputFlag(c)
	e.addAdminFlags(c)
	if !strings.Contains(c.Long, "requires the role") {
		c.Long += fmt.Sprintf("\n\nIt requires the role %s: give --reason and --ticket, or run 'hcpctl access request --class %s' before.", class().Role(), class())
	}
	return c
}
