package command

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/fleetclient"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// fleetFlags are where Cluster Service is, and who asks and why.
type fleetFlags struct {
	address, identityDir string
	reason, ticket       string
}

func (e *environment) deletion() *cobra.Command {
	var f fleetFlags
	c := group("deletion", "See what deletions wait for, and help those that are stuck",
		e.deletionList(&f), e.deletionShow(&f), e.deletionRetry(&f), e.deletionRelease(&f), e.deletionForce(&f), e.deletionLeftovers(&f))
	c.Long = `See what deletions wait for, and help those that are stuck. CLUSTER is a name in --resource-group, an ARM resource id, or the
uid of one that may be gone from ARM. The runbooks are in docs/operators/stuck-deletion.`
	e.addFleetFlags(c, &f)
	return c
}

// addFleetFlags adds the flags of commands that talk to Cluster Service about clusters.
func (e *environment) addFleetFlags(c *cobra.Command, f *fleetFlags) {
	flags := c.PersistentFlags()
	flags.StringVar(&f.address, "cluster-service-address", "", "`address` of Cluster Service's API (default the local region's)")
	flags.StringVar(&f.identityDir, "identity-dir", "", "`folder` with hcpctl's certificate (default the local region's)")
	flags.StringVar(&e.arm.Subscription, "subscription", DefaultSubscription, "subscription `id`")
	flags.StringVarP(&e.arm.Group, "resource-group", "g", DefaultGroup, "resource group's `name`")
}

func (e *environment) fleet(f *fleetFlags) (*fleetclient.Client, error) {
	address, dir := f.address, f.identityDir
	if address == "" || dir == "" {
		endpoints, err := e.endpoints()
		if err != nil {
			return nil, err
		}
		address, dir = first(address, endpoints.ClusterService), first(dir, endpoints.Identities["hcpctl"])
	}
	return fleetclient.New(address, dir)
}

// withFleet runs a command with a connection; errors come in Cluster Service's own words.
func (e *environment) withFleet(f *fleetFlags, run func(ctx context.Context, client *fleetclient.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client, err := e.fleet(f)
		if err != nil {
			return err
		}
		defer client.Close()
		err = run(c.Context(), client, args)
		if s, ok := status.FromError(err); ok && err != nil {
			return errors.New(s.Message())
		}
		return err
	}
}

// intervening adds the flags of what is recorded.
func (f *fleetFlags) intervening(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&f.reason, "reason", "", "why, in `words`; required, and kept with what is done")
	c.Flags().StringVar(&f.ticket, "ticket", "", "the incident or change that it belongs to")
	_ = c.MarkFlagRequired("reason")
	return c
}

func (f *fleetFlags) actor() *csv1.Actor {
	name := "unknown"
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	return &csv1.Actor{Name: name + " with hcpctl", Reason: f.reason, Ticket: f.ticket}
}

// allPhases has tombstones found, too.
var allPhases = []csv1.ClusterPhase{
	csv1.ClusterPhase_CLUSTER_PHASE_PENDING, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, csv1.ClusterPhase_CLUSTER_PHASE_READY,
	csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, csv1.ClusterPhase_CLUSTER_PHASE_DELETING, csv1.ClusterPhase_CLUSTER_PHASE_DELETED,
	csv1.ClusterPhase_CLUSTER_PHASE_FAILED,
}

var clusterName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,63}$`)

// findCluster finds the cluster that is meant: of several incarnations the newest.
func (e *environment) findCluster(ctx context.Context, client *fleetclient.Client, name string) (*csv1.Cluster, error) {
	if _, err := uuid.Parse(name); err == nil {
		return client.GetCluster(ctx, &csv1.GetClusterRequest{Uid: name})
	}
	id := name
	if !strings.HasPrefix(id, "/") {
		if !clusterName.MatchString(name) {
			return nil, fmt.Errorf("%q is no name of a cluster", name)
		}
		id = fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/%s", e.arm.Subscription, e.arm.Group, name)
	}
	list, err := client.ListClusters(ctx, &csv1.ListClustersRequest{ResourceId: id, Phases: allPhases, PageSize: 500})
	if err != nil {
		return nil, err
	}
	var newest *csv1.Cluster
	for _, c := range list.GetClusters() {
		if newest == nil || c.GetCreateTime().AsTime().After(newest.GetCreateTime().AsTime()) {
			newest = c
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("no cluster %s is known to Cluster Service", id)
	}
	return newest, nil
}

// underDeletion is a resource that is being deleted, or was.
type underDeletion struct {
	kind, resourceID, uid, clusterUID string
	since                             time.Time
	deletion                          *csv1.Deletion
}

// deletions lists what is being deleted: of one cluster, or of all.
func deletions(ctx context.Context, client *fleetclient.Client, clusterUID string) ([]underDeletion, error) {
	var list []underDeletion
	if clusterUID == "" {
		for token, more := "", true; more; more = token != "" {
			page, err := client.ListClusters(ctx, &csv1.ListClustersRequest{Phases: []csv1.ClusterPhase{csv1.ClusterPhase_CLUSTER_PHASE_DELETING}, PageSize: 500, PageToken: token})
			if err != nil {
				return nil, err
			}
			for _, c := range page.GetClusters() {
				list = append(list, clusterDeletion(c))
			}
			token = page.GetNextPageToken()
		}
	}
	whole := map[string]bool{}
	for _, d := range list {
		whole[d.clusterUID] = true
	}
	for token, more := "", true; more; more = token != "" {
		page, err := client.ListNodePools(ctx, &csv1.ListNodePoolsRequest{Phases: []csv1.NodePoolPhase{csv1.NodePoolPhase_NODE_POOL_PHASE_DELETING}, ClusterUid: clusterUID, PageSize: 500, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, p := range page.GetNodePools() {
			if !whole[p.GetClusterUid()] {
				list = append(list, underDeletion{"node pool", p.GetResourceId(), p.GetUid(), p.GetClusterUid(), p.GetDeleteTime().AsTime(), p.GetStatus().GetDeletion()})
			}
		}
		token = page.GetNextPageToken()
	}
	for token, more := "", true; more; more = token != "" {
		page, err := client.ListExternalAuths(ctx, &csv1.ListExternalAuthsRequest{Phases: []csv1.ExternalAuthPhase{csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING}, ClusterUid: clusterUID, PageSize: 500, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, a := range page.GetExternalAuths() {
			if !whole[a.GetClusterUid()] {
				list = append(list, underDeletion{"external auth", a.GetResourceId(), a.GetUid(), a.GetClusterUid(), a.GetDeleteTime().AsTime(), a.GetStatus().GetDeletion()})
			}
		}
		token = page.GetNextPageToken()
	}
	return list, nil
}

func clusterDeletion(c *csv1.Cluster) underDeletion {
	return underDeletion{"cluster", c.GetResourceId(), c.GetUid(), c.GetUid(), c.GetDeleteTime().AsTime(), c.GetStatus().GetDeletion()}
}

func (e *environment) deletionList(f *fleetFlags) *cobra.Command {
	var stuck bool
	c := &cobra.Command{
		Use: "list", Short: "List what is being deleted, with the steps that run", Args: cobra.NoArgs,
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, _ []string) error {
			list, err := deletions(ctx, client, "")
			if err != nil {
				return err
			}
			return display.Table(e.out, []string{"KIND", "NAME", "STEP", "AGE", "STUCK", "WAITS FOR"}, runningSteps(list, stuck, time.Now()))
		}),
	}
	c.Flags().BoolVar(&stuck, "stuck", false, "only steps that are stuck")
	return c
}

func runningSteps(list []underDeletion, stuck bool, now time.Time) [][]string {
	var rows [][]string
	for _, d := range list {
		for _, s := range d.deletion.GetSteps() {
			if s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING && (s.GetStuck() || !stuck) {
				rows = append(rows, []string{d.kind, shortID(d.resourceID), s.GetName(), age(s, now), yes(s.GetStuck()), s.GetWaitsFor()})
			}
		}
	}
	return rows
}

// shortID is what tells a resource from others of the region: subscription, group and names.
func shortID(id string) string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	if len(parts) < 8 {
		return id
	}
	names := []string{parts[1], parts[3]}
	for i := 7; i < len(parts); i += 2 {
		names = append(names, parts[i])
	}
	return strings.Join(names, "/")
}

func age(s *csv1.DeletionStep, now time.Time) string {
	return now.Sub(s.GetSince().AsTime()).Round(time.Second).String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func (e *environment) deletionShow(f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show CLUSTER", Short: "Show the steps of a cluster's deletion, and of what is being deleted in it", Args: cobra.ExactArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			list := []underDeletion{clusterDeletion(cluster)}
			if cluster.GetDeleteTime() == nil {
				if list, err = deletions(ctx, client, cluster.GetUid()); err != nil {
					return err
				}
			}
			if e.output != "table" {
				return e.showDeletions(list)
			}
			return e.deletionTables(cluster, list, time.Now())
		}),
	}
	e.addOutputFlag(c)
	return c
}

// showDeletions writes the graphs in the API's own form.
func (e *environment) showDeletions(list []underDeletion) error {
	var shown []map[string]any
	for _, d := range list {
		text, err := protojson.Marshal(d.deletion)
		if err != nil {
			return err
		}
		shown = append(shown, map[string]any{"kind": d.kind, "resourceId": d.resourceID, "uid": d.uid, "deleteTime": d.since, "deletion": rawJSON(text)})
	}
	return display.Object(e.out, e.output, shown)
}

// rawJSON is JSON that stands for itself.
type rawJSON []byte

// MarshalJSON gives it.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func (e *environment) deletionTables(cluster *csv1.Cluster, list []underDeletion, now time.Time) error {
	if len(list) == 0 {
		fmt.Fprintf(e.out, "cluster %s is %s, and nothing in it is being deleted\n", shortID(cluster.GetResourceId()),
			strings.ToLower(strings.TrimPrefix(cluster.GetStatus().GetPhase().String(), "CLUSTER_PHASE_")))
		return nil
	}
	for _, d := range list {
		fmt.Fprintf(e.out, "%s %s (%s): deletion asked for %s ago", d.kind, shortID(d.resourceID), d.uid, now.Sub(d.since).Round(time.Second))
		if cluster.GetStatus().GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_DELETED {
			fmt.Fprint(e.out, "; it is deleted")
		}
		fmt.Fprintln(e.out)
		if len(d.deletion.GetSteps()) == 0 {
			continue
		}
		var rows [][]string
		for _, s := range d.deletion.GetSteps() {
			state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_"))
			if s.GetStuck() {
				state = "stuck"
			}
			attempts := ""
			if s.GetAttempts() > 0 {
				attempts = fmt.Sprint(s.GetAttempts())
			}
			rows = append(rows, []string{s.GetName(), s.GetLayer(), state, age(s, now), attempts, about(s)})
		}
		if err := display.Table(e.out, []string{"STEP", "LAYER", "STATE", "AGE", "ATTEMPTS", ""}, rows); err != nil {
			return err
		}
	}
	return nil
}

// about is what there is to say of a step.
func about(s *csv1.DeletionStep) string {
	var parts []string
	if s.GetWaitsFor() != "" {
		parts = append(parts, s.GetWaitsFor())
	}
	if s.GetLastError() != "" {
		parts = append(parts, "Last error: "+s.GetLastError())
	}
	for _, i := range s.GetInterventions() {
		what := "Retried"
		if len(i.GetReleasedFinalizers()) > 0 {
			what = "Released " + strings.Join(i.GetReleasedFinalizers(), ", ")
		}
		parts = append(parts, fmt.Sprintf("%s by %s: %s.", what, i.GetActor().GetName(), strings.TrimSuffix(i.GetActor().GetReason(), ".")))
	}
	if force := s.GetForce(); force != nil {
		parts = append(parts, fmt.Sprintf("Forced by %s: %s. %s", force.GetActor().GetName(), strings.TrimSuffix(force.GetActor().GetReason(), "."), force.GetLeftBehind()))
	}
	return strings.Join(parts, " ")
}

func (e *environment) deletionRetry(f *fleetFlags) *cobra.Command {
	return f.intervening(&cobra.Command{
		Use: "retry CLUSTER", Short: "Have everything that deletions of a cluster wait for tried at once", Args: cobra.ExactArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			answer, err := client.RetryDeletion(ctx, &csv1.RetryDeletionRequest{ClusterUid: cluster.GetUid(), Actor: f.actor()})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "tried again: %s\n", strings.Join(answer.GetSteps(), ", "))
			return nil
		}),
	})
}

func (e *environment) deletionRelease(f *fleetFlags) *cobra.Command {
	return f.intervening(&cobra.Command{
		Use: "release CLUSTER STEP FINALIZER...", Short: "Take finalizers of controllers that are gone off what a step waits for", Args: cobra.MinimumNArgs(3),
		Long: `Take finalizers of controllers that are gone off what a step waits for. Maestro's agent on the management cluster does it, on the
objects of the step and on everything in the cluster's namespaces that is being deleted; the step goes on by itself. Finalizers
of controllers that every management cluster has are refused.`,
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			step, err := client.ReleaseDeletionFinalizers(ctx, &csv1.ReleaseDeletionFinalizersRequest{ClusterUid: cluster.GetUid(), Step: args[1], Finalizers: args[2:], Actor: f.actor()})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "the agent of %s is told to release %s; step %s goes on when it has\n", cluster.GetStatus().GetProvisionShard(), strings.Join(args[2:], ", "), step.GetName())
			return nil
		}),
	})
}

func (e *environment) deletionForce(f *fleetFlags) *cobra.Command {
	return f.intervening(&cobra.Command{
		Use: "force CLUSTER STEP", Short: "Wait no longer for a stuck step, and keep a record of what may be left behind", Args: cobra.ExactArgs(2),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			step, err := client.ForceDeletionStep(ctx, &csv1.ForceDeletionStepRequest{ClusterUid: cluster.GetUid(), Step: args[1], Actor: f.actor()})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.err, "step %s is not waited for any more. %s\n", step.GetName(), step.GetForce().GetLeftBehind())
			return nil
		}),
	})
}

func (e *environment) deletionLeftovers(f *fleetFlags) *cobra.Command {
	var gone bool
	c := &cobra.Command{
		Use: "leftovers [CLUSTER]", Short: "List what forced deletions may have left behind", Args: cobra.MaximumNArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			request := &csv1.ListDeletionLeftoversRequest{PageSize: 500, Gone: gone}
			if len(args) == 1 {
				cluster, err := e.findCluster(ctx, client, args[0])
				if err != nil {
					return err
				}
				request.ClusterUid = cluster.GetUid()
			}
			var rows [][]string
			for more := true; more; more = request.PageToken != "" {
				page, err := client.ListDeletionLeftovers(ctx, request)
				if err != nil {
					return err
				}
				for _, l := range page.GetLeftovers() {
					state := fmt.Sprintf("asked to go %d times", l.GetAttempts())
					if l.GetGoneTime() != nil {
						state = "gone since " + l.GetGoneTime().AsTime().Format(time.RFC3339)
					}
					rows = append(rows, []string{l.GetWork(), l.GetProvisionShard(), l.GetStep(), l.GetForce().GetTime().AsTime().Format(time.RFC3339),
						l.GetForce().GetActor().GetName(), l.GetForce().GetActor().GetReason(), state})
				}
				request.PageToken = page.GetNextPageToken()
			}
			return display.Table(e.out, []string{"WORK", "SHARD", "STEP", "FORCED", "BY", "WHY", "STATE"}, rows)
		}),
	}
	c.Flags().BoolVar(&gone, "gone", false, "those that have gone, too")
	return c
}
