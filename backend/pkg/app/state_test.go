package app_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// state describes everything that is visible of a region from outside, without values that differ between runs: UIDs
// and times.
type state struct {
	Documents, Operations, Actions, Billing, Fleet, Notifications []string
}

// state returns the state of a subscription and of the admin operations. The region must be idle.
func (r *region) state(sub string) (w state) {
	r.t.Helper()
	add := func(list *[]string, format string, values ...any) {
		*list = append(*list, fmt.Sprintf(format, values...))
	}
	name := func(id string) string { return strings.ToLower(id[strings.LastIndex(id, "/hcpOpenShiftClusters/")+1:]) }
	short := func(id string) string {
		parts := strings.Split(name(id), "/")
		return strings.Join(parts[max(0, len(parts)-2):], "/")
	}
	names := map[string]string{}
	ctx := r.t.Context()
	check := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	check(r.db.Clusters().ForEach(ctx, sub, "", func(i *database.Item[database.ClusterDocument]) error {
		d := i.Value
		add(&w.Documents, "%s %s generation %d (%d accepted, %d observed, %s) operation %q revocation %q versions %v", short(i.Key.ResourceID), d.ProvisioningState,
			d.Generation, d.Fleet.AcceptedGeneration, d.Fleet.ObservedGeneration, d.Fleet.Phase, d.ActiveOperationID, d.RevocationOperationID, d.Status.ActiveVersions)
		return nil
	}))
	check(r.db.NodePools().ForEach(ctx, sub, "", func(i *database.Item[database.NodePoolDocument]) error {
		d := i.Value
		add(&w.Documents, "%s %s generation %d (%d accepted, %d observed, %s) operation %q with %d of %d", short(i.Key.ResourceID), d.ProvisioningState,
			d.Generation, d.Fleet.AcceptedGeneration, d.Fleet.ObservedGeneration, d.Fleet.Phase, d.ActiveOperationID, d.Status.Replicas, d.NodePool.Properties.Replicas)
		return nil
	}))
	check(r.db.ExternalAuths().ForEach(ctx, sub, "", func(i *database.Item[database.ExternalAuthDocument]) error {
		d := i.Value
		add(&w.Documents, "%s %s generation %d (%d accepted, %d observed, %s) operation %q", short(i.Key.ResourceID), d.ProvisioningState,
			d.Generation, d.Fleet.AcceptedGeneration, d.Fleet.ObservedGeneration, d.Fleet.Phase, d.ActiveOperationID)
		return nil
	}))
	check(r.db.Credentials().ForEach(ctx, sub, "", func(i *database.Item[database.CredentialDocument]) error {
		add(&w.Documents, "credential %s expires %v", i.Value.State, i.Value.ExpirationTime != nil)
		return nil
	}))
	check(r.db.Reservations().ForEach(ctx, sub, "", func(*database.Item[database.ReservationDocument]) error {
		add(&w.Documents, "a reservation")
		return nil
	}))
	if s, err := r.db.Subscriptions().Find(ctx, database.SubscriptionKey(sub)); err == nil && s != nil {
		add(&w.Documents, "subscription %s emptied %v", s.Value.Subscription.State, s.Value.EmptiedTime != nil)
	}
	check(r.db.Operations().ForEach(ctx, sub, "", func(i *database.Item[database.OperationDocument]) error {
		o := i.Value
		what := short(o.ResourceID)
		if at := strings.IndexByte(what, '/'); at > 0 && (strings.HasPrefix(what, "admincredentials/") || strings.HasPrefix(what, "credentialrevocations/")) {
			what = what[:at] // the rest is an ID
		}
		code := ""
		if o.Error != nil {
			code = o.Error.Code
		}
		add(&w.Operations, "%s %s %s %s, notified: %v", o.Request, what, o.Status, code, o.Notification != nil && o.Notification.Delivered)
		return nil
	}))
	check(r.db.AdminOperations().ForEach(ctx, database.AdminPartition, "", func(i *database.Item[database.AdminOperationDocument]) error {
		o := i.Value
		problem := ""
		if o.Error != nil {
			problem = o.Error.Message
		}
		add(&w.Actions, "%s %s %s", o.Action, o.State, problem)
		return nil
	}))
	check(r.db.EachEgressLink(ctx, func(i *database.Item[database.EgressLinkDocument]) error {
		add(&w.Documents, "egress link %s generation %d removed %v with %d hosts", i.Value.LinkID, i.Value.Generation, i.Value.RemovedTime != nil, len(i.Value.Hosts))
		return nil
	}))
	f := r.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, c := range f.clusters {
		names[uid] = short(c.ResourceId)
		add(&w.Fleet, "%s %s generation %d observed %d version %s, %d effects", names[uid], c.Status.Phase, c.Generation, c.Status.ObservedGeneration, c.Spec.GetVersion().GetId(), f.effects[uid])
		billed, err := r.db.Billing(ctx, sub, uid)
		check(err)
		if billed != nil {
			add(&w.Billing, "%s ended: %v, lived: %v", names[uid], billed.DeletionTime != nil, billed.DeletionTime == nil || billed.CreationTime.Before(*billed.DeletionTime))
		}
	}
	for uid, p := range f.pools {
		add(&w.Fleet, "%s %s generation %d observed %d with %d, %d effects", short(p.ResourceId), p.Status.Phase, p.Generation, p.Status.ObservedGeneration, p.Spec.GetReplicas(), f.effects[uid])
	}
	for uid, e := range f.auths {
		add(&w.Fleet, "%s %s generation %d observed %d, %d effects", short(e.ResourceId), e.Status.Phase, e.Generation, e.Status.ObservedGeneration, f.effects[uid])
	}
	for uid, c := range f.creds {
		add(&w.Fleet, "credential %s, %d effects", c.Status.State, f.effects[uid])
	}
	for uid, v := range f.revokes {
		add(&w.Fleet, "revocation %s, %d effects", v.Status.State, f.effects[uid])
	}
	for _, done := range f.actions {
		add(&w.Fleet, "action: %s", done)
	}
	for _, list := range [][]string{w.Documents, w.Operations, w.Actions, w.Billing, w.Fleet} {
		slices.SortFunc(list, cmp.Compare[string])
	}
	return w
}
