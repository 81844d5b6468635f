package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
)

func (e *environment) deleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "delete TARGET", Short: "Delete a stamp or a region with its infrastructure", Args: cobra.ExactArgs(1),
		Long: `Delete a stamp or a region with its infrastructure. TARGET is CLOUD/ENVIRONMENT/REGION/STAMP, or CLOUD/ENVIRONMENT/REGION, which includes its
stamps. What the regions of an environment share stays.

The command first checks the deletion gates of all steps: a management cluster may be deleted only when Cluster Service has deregistered it, which it does
only without clusters. It then lists what it would delete. It refuses to delete data stores, vaults and clusters unless --allow-deletion names each;
the error has these flags. Nothing is deleted before all gates are open and all deletions are allowed.

The steps are deleted one after the other, in the reverse order of a rollout. A deletion that failed or was interrupted, in whatever way, goes on when
the command is run again. Remove the target from the configuration afterwards: the next rollout would create it again.`,
		RunE: func(c *cobra.Command, args []string) error {
			target, err := layer.ParseTarget(args[0])
			if err != nil {
				return &inputError{err}
			}
			if target.Level() < layer.Region {
				return &inputError{fmt.Errorf("%s is neither a region nor a stamp: use CLOUD/ENVIRONMENT/REGION[/STAMP]", target)}
			}
			s, err := e.session(target[:layer.Region].String())
			if err != nil {
				return err
			}
			shown := newProgress(c.ErrOrStderr())
			preview := c.OutOrStdout()
			if e.output == "json" {
				preview = c.ErrOrStderr()
			}
			deleted, err := s.delete(c.Context(), target, preview, shown.report)
			shown.close()
			if err != nil {
				return err
			}
			return e.printDeleted(c.OutOrStdout(), target, deleted)
		},
	}
	e.addFlags(c)
	e.addInfrastructureFlags(c)
	c.Flags().BoolVar(&e.dryRun, "dry-run", false, "check the gates and list what would be deleted, and delete nothing")
	return c
}

// delete deletes a target of the region under the locks. It writes what it will delete to preview.
func (s *session) delete(ctx context.Context, target layer.Target, preview io.Writer, report func(runner.Event)) (deleted []string, err error) {
	instances := slices.DeleteFunc(slices.Clone(s.instances), func(i *plan.Instance) bool { return !target.Contains(i.Target) })
	if len(instances) == 0 {
		return nil, &inputError{fmt.Errorf("the configuration has no stamp %s; a stamp is deleted before it is removed from the configuration", target)}
	}
	release, err := s.lockFor(instances)
	defer release()
	if err != nil {
		return nil, err
	}
	store := s.stores[s.region.String()]
	// Of a deletion that has begun, the gates were open. They may not be any more, because their services can be deleted.
	begun := func(i *plan.Instance) bool { return store.DeletionBegun(i.Target) }
	instances = slices.DeleteFunc(instances, func(i *plan.Instance) bool {
		_, recorded := store.Step(i.ID)
		return begun(i) && !recorded // deleted already
	})
	r := s.runner(report)
	err = errors.Join(r.CheckDeletionGates(ctx, slices.DeleteFunc(slices.Clone(instances), begun), preview), r.PreviewDeletion(ctx, instances, preview))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &inputError{fmt.Errorf("nothing was deleted:\n%w", err)}
	case s.dryRun:
		return nil, nil
	}
	if err := store.BeginDeletion(target); err != nil {
		return nil, err
	}
	deleted, err = r.Delete(ctx, instances)
	if errors.Is(err, runner.ErrDeletionFailed) {
		err = fmt.Errorf("%w; the logs are in %s; `rollout delete %s` goes on after the cause is removed", err, r.LogsDir, target)
	}
	if err != nil {
		return deleted, err
	}
	return deleted, store.EndDeletion(target)
}

func (e *environment) printDeleted(out io.Writer, target layer.Target, deleted []string) error {
	if e.output == "json" {
		return printJSON(out, struct {
			Deleted []string `json:"deleted"`
		}{append([]string{}, deleted...)})
	}
	if e.dryRun {
		_, err := fmt.Fprintln(out, "nothing was deleted, because of --dry-run")
		return err
	}
	_, err := fmt.Fprintf(out, "%d steps of %s are deleted; remove it from the configuration, or the next rollout creates it again\n", len(deleted), target)
	return err
}
