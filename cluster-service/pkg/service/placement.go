package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ExplainPlacement explains why a cluster is on its shard, or why it has none.
func (s *Service) ExplainPlacement(ctx context.Context, r *csv1.ExplainPlacementRequest) (*csv1.PlacementExplanation, error) {
	if err := validUID("uid", r.GetUid()); err != nil {
		return nil, s.answer(ctx, err)
	}
	e, err := s.o.Store.Placement(ctx, strings.ToLower(r.GetUid()))
	if errors.Is(err, store.ErrUnknown) {
		err = unknown(ReasonClusterUnknown, "cluster", r.GetUid())
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return s.explain(e), nil
}

// SetPlacementPolicy sets the placement policy of one cluster.
func (s *Service) SetPlacementPolicy(ctx context.Context, r *csv1.SetPlacementPolicyRequest) (*csv1.PlacementExplanation, error) {
	var c check
	if err := validUID("uid", r.GetUid()); err != nil {
		c.fail("uid", "Invalid value: must be a UUID")
	}
	policy := policyOf(r.GetPolicy())
	c.problems(s.rules().Check("policy.", policy))
	c.actor("actor", r.GetActor())
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid := strings.ToLower(r.GetUid())
	if err := s.o.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		switch t := tx.Aggregates[uid]; {
		case t.Cluster == nil:
			return unknown(ReasonClusterUnknown, "cluster", uid)
		case t.Cluster.Deleting():
			return failedPrecondition(ReasonClusterDeleting, "The cluster is being deleted: its placement rules cannot be changed.")
		}
		var override *store.PolicyOverride
		if r.GetPolicy() != nil {
			override = &store.PolicyOverride{Policy: policy, Actor: storedActor(r.GetActor()), Time: s.o.Store.Now()}
		}
		tx.SetPolicyOverride(uid, override)
		return nil
	}); err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "set placement policy", uid, r.GetActor(), logkey.Policy, policy.Describe())
	return s.ExplainPlacement(ctx, &csv1.ExplainPlacementRequest{Uid: uid})
}

func (s *Service) explain(e *store.Placement) *csv1.PlacementExplanation {
	c := e.Aggregate.Cluster
	now := e.Decide(s.o.Store.Now(), s.rules())
	explained := &csv1.PlacementExplanation{Uid: c.UID, ResourceId: c.ResourceID, ClusterId: c.ID(), ProvisionShard: c.Shard,
		Now: decisionProto(now), Sentences: sentences(e, now)}
	if o := e.Override; o != nil {
		explained.Override, explained.OverrideActor, explained.OverrideTime = policyProto(o.Policy), actorProto(&o.Actor), timestamppb.New(o.Time)
	}
	for _, d := range e.Decisions {
		decision := decisionProto(d.Decision)
		decision.FirstTime, decision.LastTime, decision.Count = timestamppb.New(d.First), timestamppb.New(d.Last), d.Count
		explained.Decisions = append(explained.Decisions, decision)
	}
	return explained
}

const clockFormat = "2006-01-02 15:04:05 UTC"

// sentences explains a placement in plain sentences.
func sentences(e *store.Placement, now placement.Decision) []string {
	c := e.Aggregate.Cluster
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case c.Gone():
		add("The cluster is deleted and no longer uses a place.")
		return lines
	case c.Shard == "" && c.Deleting():
		add("The cluster is being deleted and was never placed.")
		return lines
	case c.Shard != "" && len(e.Decisions) == 0:
		add("The cluster is on %s. The decision is not stored: it was made before Cluster Service stored decisions.", c.Shard)
	case c.Shard != "":
		last := e.Decisions[0]
		add("The cluster has been on %s since %s. %s", c.Shard, last.First.Format(clockFormat), last.Message())
		add("It counted as size class %s, and the rules were: %s.", last.SizeClass, last.Policy.Describe())
		if len(e.Decisions) > 1 {
			first := e.Decisions[len(e.Decisions)-1]
			add("It had waited since %s because of this decision: %s", c.CreateTime.Format(clockFormat), first.Message())
		}
	default:
		add("The cluster has waited for a place since %s. %s", c.CreateTime.Format(clockFormat), now.Message())
		add("It counts as size class %s, and the rules are: %s.", now.SizeClass, now.Policy.Describe())
		switch remedies := now.Remedies(); {
		case now.Shard != "":
			add("%s can accept it now: Cluster Service will place it shortly.", now.Shard)
		case len(remedies) > 0:
			add("It would be placed as soon as %s.", strings.Join(remedies, ", or "))
		default:
			add("It would be placed as soon as a provision shard is registered.")
		}
	}
	if o := e.Override; o != nil {
		rules := o.Policy.Describe()
		if rules == "" {
			rules = "none"
		}
		add("The cluster has its own rules: %s. %s set them on %s: %s", rules, o.Actor.Name, o.Time.Format(clockFormat), o.Actor.Reason)
	}
	if c.Shard == "" {
		return lines
	}
	switch verdict, found := now.Verdict(c.Shard); {
	case !found:
		add("%s no longer exists.", c.Shard)
	case len(verdict.Obstacles) > 0:
		add("It would not be placed there today: %s %s. Placed clusters are not moved.", c.Shard, verdict.Why())
	}
	return lines
}

func decisionProto(d placement.Decision) *csv1.PlacementDecision {
	return &csv1.PlacementDecision{ProvisionShard: d.Shard, Policy: policyProto(d.Policy), SizeClass: d.SizeClass, WantedNodes: d.Nodes,
		Verdicts: verdictProtos(d.Verdicts), Omitted: int32(d.Omitted), Message: d.Message()}
}

func verdictProtos(verdicts []placement.Verdict) []*csv1.PlacementVerdict {
	var list []*csv1.PlacementVerdict
	for _, v := range verdicts {
		verdict := &csv1.PlacementVerdict{ProvisionShard: v.Shard, Rank: int32(v.Rank), Score: v.Score, Clusters: v.Clusters, Capacity: v.Capacity}
		for _, o := range v.Obstacles {
			verdict.Obstacles = append(verdict.Obstacles, &csv1.PlacementObstacle{Reason: string(o.Reason), Message: o.Message, Remedy: o.Remedy})
		}
		list = append(list, verdict)
	}
	return list
}

var strategies = map[csv1.PlacementStrategy]placement.Strategy{
	csv1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD: placement.Spread,
	csv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK:   placement.Pack,
}

func policyOf(p *csv1.PlacementPolicy) placement.Policy {
	policy := placement.Policy{Strategy: strategies[p.GetStrategy()], Zones: p.GetZones(), MinimumZones: int(p.GetMinimumZones()), Labels: p.GetLabels(),
		SizeClass: p.GetSizeClass(), Shard: p.GetProvisionShard(), Avoid: p.GetAvoid()}
	if policy.Strategy == "" && p.GetStrategy() != csv1.PlacementStrategy_PLACEMENT_STRATEGY_UNSPECIFIED {
		policy.Strategy = placement.Strategy(p.GetStrategy().String())
	}
	return policy
}

func policyProto(p placement.Policy) *csv1.PlacementPolicy {
	policy := &csv1.PlacementPolicy{Zones: p.Zones, MinimumZones: int32(p.MinimumZones), Labels: p.Labels, SizeClass: p.SizeClass,
		ProvisionShard: p.Shard, Avoid: p.Avoid}
	for strategy, name := range strategies {
		if name == p.Strategy {
			policy.Strategy = strategy
		}
	}
	return policy
}

// PlanDrain plans the shards that the clusters of a shard would move to.
func (s *Service) PlanDrain(ctx context.Context, r *csv1.PlanDrainRequest) (*csv1.DrainPlan, error) {
	shard, others, err := s.findShard(ctx, r.GetName())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	aggregates, overrides, err := s.o.Store.ClustersOnShard(ctx, shard.Name)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	now := s.o.Store.Now()
	var facts []placement.Shard
	for _, other := range others {
		if !other.Deregistered {
			facts = append(facts, other.ForPlacement(now, s.rules()))
		}
	}
	byUID := map[string]*fleet.ClusterAggregate{}
	var tenants []placement.Tenant
	for _, t := range aggregates {
		byUID[t.Cluster.UID] = t
		tenants = append(tenants, placement.Tenant{UID: t.Cluster.UID, Needs: t.PlacementNeeds(), Rules: overrides[t.Cluster.UID],
			Created: t.Cluster.CreateTime, Leaving: t.Cluster.Deleting()})
	}
	cluster := func(t placement.Tenant) *csv1.DrainCluster {
		c := byUID[t.UID].Cluster
		return &csv1.DrainCluster{Uid: c.UID, ResourceId: c.ResourceID, ClusterId: c.ID(), SizeClass: s.rules().ClassOf(t.Needs, t.Rules), WantedNodes: t.Needs.Nodes}
	}
	plan := placement.Plan(shard.Name, tenants, facts, s.rules())
	answered := &csv1.DrainPlan{ProvisionShard: s.shardProto(shard), Time: timestamppb.New(now), Sentences: plan.Sentences()}
	for _, m := range plan.Moves {
		answered.Moves = append(answered.Moves, &csv1.DrainMove{Cluster: cluster(m.Tenant), ProvisionShard: m.Decision.Shard})
	}
	for _, b := range plan.Blocked {
		answered.Blocked = append(answered.Blocked, &csv1.DrainBlocked{Cluster: cluster(b.Tenant), Verdicts: verdictProtos(b.Decision.Verdicts), Message: b.Decision.Message()})
	}
	for _, t := range plan.Leaving {
		answered.Leaving = append(answered.Leaving, cluster(t))
	}
	for _, t := range plan.Targets {
		answered.Targets = append(answered.Targets, &csv1.DrainTarget{ProvisionShard: t.Shard, ClustersBefore: t.Before, ClustersAfter: t.After, Capacity: t.Capacity})
	}
	for _, n := range plan.Needs {
		answered.Needs = append(answered.Needs, &csv1.CapacityNeed{Places: n.Places, SizeClass: n.SizeClass, Policy: policyProto(n.Policy)})
	}
	return answered, nil
}
