package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// updateAttempts is the number of times that an update reads the resource: once, and again each time that another request has changed
// the resource before the update was accepted.
const updateAttempts = 5

// change returns the merge patch (RFC 7396) that gives a resource what a command asks for. It depends on the current state of the
// resource only for what a patch must repeat, such as the spelling of tag names and the other elements of a list. So it can be
// computed again after another request has changed the resource.
type change func(current armclient.Resource) (armclient.Resource, error)

// update returns a command that changes a resource. The patch is accepted only for the state that it was computed from. The operation
// succeeds only if the resource then has what the command asked for.
func (e *environment) update(k kind, verb, short string, change change) *cobra.Command {
	return e.operate(k, k.of(verb), short, func(ctx context.Context, client *armclient.Client, id string, names []string) (armclient.Operation, error) {
		var operation armclient.Operation
		var patch armclient.Resource
		var err error
		for range updateAttempts {
			current, etag, readErr := client.GetWithETag(ctx, id)
			if readErr != nil {
				return nil, k.withList(names, readErr)
			}
			if patch, err = change(current); err != nil {
				return nil, err
			}
			if operation, err = client.Patch(ctx, id, patch, etag); !armclient.IsPreconditionFailed(err) {
				break
			}
		}
		if armclient.IsPreconditionFailed(err) {
			return nil, fmt.Errorf("other requests changed the %s %d times before this update was accepted; try again: %w", k.noun, updateAttempts, err)
		}
		if err != nil {
			return nil, err
		}
		return verified{Operation: operation, verify: func(ctx context.Context) error {
			stored, err := client.Get(ctx, id)
			if err != nil {
				return fmt.Errorf("the operation succeeded; reading the %s to verify it: %w", k.noun, err)
			}
			return checkStored(k, patch, stored)
		}}, nil
	})
}

// updateCommand returns the command that changes what its flags name, or with --file any property.
func (e *environment) updateCommand(k kind, flagged change) *cobra.Command {
	var file string
	c := e.update(k, "update", "Update "+k.a(), func(current armclient.Resource) (armclient.Resource, error) {
		if file != "" {
			return readBody(file)
		}
		return flagged(current)
	})
	c.Long = "Update " + k.a() + ` and wait for the operation to complete.

With --file the file is a merge patch (RFC 7396) in YAML or JSON: it has the properties to change, and null for those to remove. A list replaces
the list of the resource. The command fails if the resource does not have what was requested when the operation has succeeded.`
	c.Flags().StringVarP(&file, "file", "f", "", "`file` with the properties to change in YAML or JSON; replaces the other flags")
	return c
}

// setChanged calls the functions of the flags that the command line sets.
func setChanged(c *cobra.Command, set map[string]func()) {
	for flag, set := range set {
		if c.Flags().Changed(flag) {
			set()
		}
	}
}

// eitherFileOr makes a command line invalid that has neither --file nor one of the flags, or both.
func eitherFileOr(c *cobra.Command, flags ...string) {
	c.MarkFlagsOneRequired(append([]string{"file"}, flags...)...)
	for _, flag := range flags {
		c.MarkFlagsMutuallyExclusive("file", flag)
	}
}

// verified is an operation that succeeds only if its effect is verified.
type verified struct {
	armclient.Operation
	verify func(ctx context.Context) error
}

// Finish implements armclient.Operation.
func (v verified) Finish(ctx context.Context) error {
	if err := v.Operation.Finish(ctx); err != nil {
		return err
	}
	return v.verify(ctx)
}
