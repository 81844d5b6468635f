package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// requestFunc asks admin for something.
type requestFunc func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error)

// justification is why an SRE does something. Whoever has elevated says it no more; whoever gives both is elevated for the one
// command.
type justification struct{ reason, ticket string }

func (b *justification) add(c *cobra.Command) {
	c.Flags().StringVar(&b.reason, "reason", "", "`text` that says why, at least 8 characters; with --ticket it takes the role for this command, without both it takes 'hcpctl elevate' before")
	c.Flags().StringVar(&b.ticket, "ticket", "", "`id` of the incident or change")
	c.MarkFlagsRequiredTogether("reason", "ticket")
}

const (
	// elevationDuration is how long an elevation for one command lasts should its end not be told; admin knows none shorter than 1m.
	elevationDuration = "2m"
	// elevationEndTimeout bounds how long its end is tried.
	elevationEndTimeout = 10 * time.Second
)

// withElevation asks with a role that is taken for it and given back, when a reason is given; else with what the caller has.
func (e *environment) withElevation(ctx context.Context, client *adminclient.Client, role adminv1.Role, why justification, do func(context.Context) (*adminv1.Operation, error)) (*adminv1.Operation, error) {
	if why.reason == "" {
		return do(ctx)
	}
	elevation, err := client.Elevate(ctx, adminv1.ElevationRequest{Role: role, Reason: why.reason, Ticket: why.ticket, Duration: elevationDuration})
	if err != nil {
		return nil, err
	}
	defer func() {
		// Whoever gives up on the command does not keep the role.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), elevationEndTimeout)
		defer cancel()
		if _, err := client.EndElevation(ctx, elevation.ID); err != nil {
			fmt.Fprintf(e.err, "the elevation %s could not be ended, and lasts until %s: %v\n", elevation.ID, elevation.ExpirationTime.Local().Format(time.TimeOnly), err)
		}
	}()
	return do(ctx)
}

// requestAction makes a command by which an SRE changes something: it asks admin, waits for the end of the operation, and says
// what it changed.
func (e *environment) requestAction(c *cobra.Command, role adminv1.Role, ask requestFunc) *cobra.Command {
	return e.requestAndShow(c, role, ask, func(operation *adminv1.Operation) error {
		if text := adminclient.Effect(operation); text != "" {
			_, err := fmt.Fprintln(e.out, text)
			return err
		}
		return e.printDone(operation)
	})
}

// printDone is what is said of an operation that succeeded when no more is known of it.
func (e *environment) printDone(operation *adminv1.Operation) error {
	_, err := fmt.Fprintln(e.out, operation.Action+": done.")
	return err
}

// requestResult is intervene for what Cluster Service answers with a message, which has its own way of being shown.
func requestResult[M proto.Message](e *environment, c *cobra.Command, role adminv1.Role, ask requestFunc, show func(M) error) *cobra.Command {
	return e.requestAndShow(c, role, ask, resultPrinter(e, show))
}

// resultPrinter decodes what Cluster Service answered an operation with.
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

// requestAndShow is intervene for what has its own way of being shown.
func (e *environment) requestAndShow(c *cobra.Command, role adminv1.Role, ask requestFunc, show func(*adminv1.Operation) error) *cobra.Command {
	return e.requestWithRole(c, func() adminv1.Role { return role }, ask, show)
}

// requestWithRole is interveneAndShow for what needs a role that depends on what is asked.
func (e *environment) requestWithRole(c *cobra.Command, role func() adminv1.Role, ask requestFunc, show func(*adminv1.Operation) error) *cobra.Command {
	var noWait bool
	var why justification
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := e.adminClient()
		if err != nil {
			return err
		}
		operation, err := e.withElevation(c.Context(), client, role(), why, func(ctx context.Context) (*adminv1.Operation, error) { return ask(ctx, client, args) })
		if err != nil {
			return err
		}
		if noWait {
			return e.printAs(operation, func() error {
				_, err := fmt.Fprintln(e.out, "operation "+operation.ID)
				return err
			})
		}
		if operation, err = client.Await(c.Context(), operation); err != nil {
			return err
		}
		return e.printAs(operation, func() error { return show(operation) })
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when it is written down")
	why.add(c)
	e.addOutputFlag(c)
	return e.addAdminFlags(c)
}
