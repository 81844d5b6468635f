package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The actions in the history of a shard.
const (
	actionRegister   = "register"
	actionUpdate     = "update"
	actionCordon     = "cordon"
	actionUncordon   = "uncordon"
	actionDrain      = "drain"
	actionDeregister = "deregister"
)

// rules returns the current placement rules of the region.
func (s *Service) rules() *placement.Rules { return s.o.Renderer.Placement() }

// ListProvisionShards returns the provision shards.
func (s *Service) ListProvisionShards(ctx context.Context, r *csv1.ListProvisionShardsRequest) (*csv1.ListProvisionShardsResponse, error) {
	shards, err := s.o.Store.Shards(ctx)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListProvisionShardsResponse{}
	for _, shard := range shards {
		if !shard.Deregistered || r.GetShowDeregistered() {
			response.ProvisionShards = append(response.ProvisionShards, s.shardProto(&shard))
		}
	}
	return response, nil
}

// GetProvisionShard returns a shard with its history and clusters.
func (s *Service) GetProvisionShard(ctx context.Context, r *csv1.GetProvisionShardRequest) (*csv1.ProvisionShardReport, error) {
	shard, _, err := s.findShard(ctx, r.GetName())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	aggregates, overrides, err := s.o.Store.ClustersOnShard(ctx, shard.Name)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	history, err := s.o.Store.ShardChanges(ctx, shard.Name)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	report := &csv1.ProvisionShardReport{ProvisionShard: s.shardProto(shard), UnansweredWorks: shard.Unanswered}
	if report.WaitingClusters, err = s.o.Store.CountUnplaced(ctx); err != nil {
		return nil, s.answer(ctx, err)
	}
	// The rules may change at any time. This call uses one version of them.
	rules := s.rules()
	usage := map[string]*csv1.SizeClassUsage{}
	for _, class := range rules.SizeClasses {
		accepted := len(shard.SizeClasses()) == 0 || slices.Contains(shard.SizeClasses(), class.Name)
		usage[class.Name] = &csv1.SizeClassUsage{SizeClass: class.Name, Accepted: accepted}
		report.SizeClasses = append(report.SizeClasses, usage[class.Name])
	}
	for _, t := range aggregates {
		if t.Cluster.Deleting() {
			report.DeletingClusters++
		}
		of := usage[rules.ClassOf(t.PlacementNeeds(), overrides[t.Cluster.UID])]
		of.Clusters++
		of.Nodes, of.WantedNodes = of.Nodes+t.Nodes(), of.WantedNodes+t.DesiredNodes()
		report.Nodes, report.WantedNodes = report.Nodes+t.Nodes(), report.WantedNodes+t.DesiredNodes()
	}
	for _, change := range history {
		report.History = append(report.History, &csv1.ProvisionShardChange{Time: timestamppb.New(change.Time), Actor: actorProto(&change.Actor),
			Action: change.Action, Changes: change.Changes, Version: change.Version})
	}
	return report, nil
}

// findShard returns a shard that is not deregistered, and all other shards.
func (s *Service) findShard(ctx context.Context, name string) (*store.Shard, []store.Shard, error) {
	shards, err := s.o.Store.Shards(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, shard := range shards {
		if shard.Name == name && !shard.Deregistered {
			return &shard, slices.Delete(shards, i, i+1), nil
		}
	}
	return nil, nil, unknown(ReasonShardUnknown, "provision shard", name)
}

// RegisterProvisionShard registers a management cluster as a provision shard.
func (s *Service) RegisterProvisionShard(ctx context.Context, r *csv1.RegisterProvisionShardRequest) (*csv1.ProvisionShard, error) {
	var c check
	c.problems(placement.CheckName("name", r.GetName()), placement.CheckZones("zones", r.GetZones()),
		s.rules().CheckClasses("size_classes", r.GetSizeClasses()), placement.CheckLabels("labels", r.GetLabels()))
	if r.GetCapacity() < 0 {
		c.fail("capacity", "Invalid value: %d: must not be negative", r.GetCapacity())
	}
	offer := store.Offer{Capacity: &r.Capacity, Zones: r.GetZones(), SizeClasses: r.GetSizeClasses(), Labels: r.GetLabels()}
	return s.changeShard(ctx, r.GetName(), unregistered, r.GetActor(), 0, c, func(shard *store.Shard, _ []store.Shard) (string, []string, error) {
		switch {
		case shard.Registered && shard.Listed() && shard.Offers(offer):
			return "", nil, nil
		case shard.Listed():
			return "", nil, failedPrecondition(ReasonShardExists, "Provision shard "+shard.Name+" already exists with other settings. Change them with an update.")
		case !s.o.Renderer.HasShardKey(shard.Name):
			return "", nil, failedPrecondition(ReasonShardKeyMissing, "Cluster Service has no public key of "+shard.Name+", so it cannot seal Secrets for its agent. Deploy the key, then register the shard.")
		}
		shard.Base, shard.Override = offer, store.Offer{}
		shard.Registered, shard.Deregistered, shard.Cordoned, shard.Draining = true, false, true, false
		s.entered(shard, r.GetActor())
		return actionRegister, []string{fmt.Sprintf("capacity %d", r.GetCapacity()), "zones " + listed(r.GetZones()),
			"size classes " + listed(r.GetSizeClasses()), "labels " + labelled(r.GetLabels()), "cordoned"}, nil
	})
}

// UpdateProvisionShard stores what an operator sets on a shard.
func (s *Service) UpdateProvisionShard(ctx context.Context, r *csv1.UpdateProvisionShardRequest) (*csv1.ProvisionShard, error) {
	var c check
	c.problems(placement.CheckZones("zones.values", r.GetZones().GetValues()), s.rules().CheckClasses("size_classes.values", r.GetSizeClasses().GetValues()),
		placement.CheckLabels("labels.values", r.GetLabels().GetValues()))
	if r.GetCapacity() < 0 {
		c.fail("capacity", "Invalid value: %d: must not be negative", r.GetCapacity())
	}
	set := map[string]bool{fieldCapacity: r.Capacity != nil, fieldZones: r.GetZones() != nil, fieldSizeClasses: r.GetSizeClasses() != nil, fieldLabels: r.GetLabels() != nil}
	for i, field := range r.GetUseConfigured() {
		at := fmt.Sprintf("use_configured[%d]", i)
		c.oneOf(at, field, fieldCapacity, fieldZones, fieldSizeClasses, fieldLabels)
		if set[field] {
			c.fail(at, "Invalid value: %q: is set in the same request", field)
		}
	}
	return s.changeShard(ctx, r.GetName(), known, r.GetActor(), r.GetExpectedVersion(), c, func(shard *store.Shard, others []store.Shard) (string, []string, error) {
		changes := s.changeOffer(shard, r)
		action := actionUpdate
		if r.Cordoned != nil && r.GetCordoned() != (shard.Cordoned || shard.State() == placement.Retired) {
			action = actionCordon
			if !r.GetCordoned() {
				action = actionUncordon
			}
			if err := s.cordon(shard, others, r.GetCordoned(), r.GetAcceptNoRoom()); err != nil {
				return "", nil, err
			}
			s.entered(shard, r.GetActor())
			changes = append(changes, action+"ed")
		}
		if len(changes) == 0 {
			return "", nil, nil
		}
		return action, changes, nil
	})
}

func (s *Service) cordon(shard *store.Shard, others []store.Shard, cordoned, acceptNoRoom bool) error {
	switch {
	case !cordoned && !shard.Listed():
		return failedPrecondition(ReasonShardNotConfigured, shard.Name+" is no longer in the shards file. Register it, or put it back into the file; then it can be uncordoned.")
	case cordoned && !acceptNoRoom:
		if err := s.notLast(shard, others); err != nil {
			return err
		}
	}
	shard.Cordoned, shard.Draining = cordoned, false
	return nil
}

// notLast rejects a change after which no shard would accept clusters.
func (s *Service) notLast(shard *store.Shard, others []store.Shard) error {
	if shard.State() != placement.Active {
		return nil
	}
	for _, other := range others {
		if other.State() == placement.Active && other.Clusters < other.Capacity() && !other.Unresponsive(s.o.Store.Now(), s.rules().Silence()) {
			return nil
		}
	}
	return failedPrecondition(ReasonLastShard, "No other provision shard accepts clusters and has a free place: every new cluster would wait. Uncordon or register another shard first, or accept that there is no free place (accept_no_room).")
}

// DrainProvisionShard starts to drain a shard.
func (s *Service) DrainProvisionShard(ctx context.Context, r *csv1.DrainProvisionShardRequest) (*csv1.DrainPlan, error) {
	if _, err := s.changeShard(ctx, r.GetName(), known, r.GetActor(), r.GetExpectedVersion(), check{}, func(shard *store.Shard, others []store.Shard) (string, []string, error) {
		if shard.Draining {
			return "", nil, nil
		}
		if !r.GetAcceptNoRoom() {
			if err := s.notLast(shard, others); err != nil {
				return "", nil, err
			}
		}
		shard.Cordoned, shard.Draining = true, true
		s.entered(shard, r.GetActor())
		return actionDrain, []string{"cordoned", "draining"}, nil
	}); err != nil {
		return nil, err
	}
	return s.PlanDrain(ctx, &csv1.PlanDrainRequest{Name: r.GetName()})
}

// DeregisterProvisionShard removes a shard without clusters.
func (s *Service) DeregisterProvisionShard(ctx context.Context, r *csv1.DeregisterProvisionShardRequest) (*csv1.ProvisionShard, error) {
	return s.changeShard(ctx, r.GetName(), deregistered, r.GetActor(), r.GetExpectedVersion(), check{}, func(shard *store.Shard, _ []store.Shard) (string, []string, error) {
		switch {
		case shard.Deregistered:
			return "", nil, nil
		case shard.State() == placement.Active:
			return "", nil, failedPrecondition(ReasonShardNotCordoned, shard.Name+" accepts clusters. Drain it first: draining cordons the shard and plans the moves of its clusters.")
		case shard.Clusters > 0:
			return "", nil, failedPrecondition(ReasonShardNotEmpty, fmt.Sprintf("%s has %s, including those being deleted. It can be deregistered when it has none.", shard.Name, counted(shard.Clusters)))
		}
		shard.Deregistered, shard.Registered, shard.Cordoned, shard.Draining = true, false, true, false
		s.entered(shard, r.GetActor())
		return actionDeregister, []string{"deregistered"}, nil
	})
}

func counted(clusters int32) string {
	if clusters == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", clusters)
}

func (s *Service) entered(shard *store.Shard, actor *csv1.Actor) {
	who := storedActor(actor)
	shard.StateActor, shard.StateTime = &who, s.o.Store.Now()
}

// scope selects the shards that a change accepts.
type scope int

const (
	// known accepts shards that are not deregistered, deregistered also those that are, and unregistered also shards that
	// never existed.
	known scope = iota
	deregistered
	unregistered
)

// changeShard locks the shards and calls change, which returns the action and a list of changes for the history. With an
// empty action, nothing is stored.
func (s *Service) changeShard(ctx context.Context, name string, among scope, actor *csv1.Actor, version int64, c check,
	change func(shard *store.Shard, others []store.Shard) (action string, changes []string, err error)) (*csv1.ProvisionShard, error) {
	c.actor("actor", actor)
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	var done string
	var what []string
	shard, err := s.o.Store.ChangeShard(ctx, name, func(shard *store.Shard, others []store.Shard) (*store.Shard, *store.ShardChange, error) {
		switch {
		case shard == nil && among != unregistered, shard != nil && shard.Deregistered && among == known:
			return nil, nil, unknown(ReasonShardUnknown, "provision shard", name)
		case shard == nil:
			shard = &store.Shard{Name: name, Deregistered: true}
		case version != 0 && version != shard.Version:
			return nil, nil, apierror.New(apierror.Conflict, "The provision shard was changed and is at version %d. Read it again before changing it.", shard.Version).WithReason(ReasonShardChanged)
		}
		others = slices.DeleteFunc(others, func(other store.Shard) bool { return other.Deregistered })
		var err error
		if done, what, err = change(shard, others); err != nil || done == "" {
			return shard, nil, err
		}
		return shard, &store.ShardChange{Time: s.o.Store.Now(), Actor: storedActor(actor), Action: done, Changes: what}, nil
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	if done != "" {
		s.audit(ctx, "shard "+done, "", actor, logkey.Shard, name, logkey.Changes, strings.Join(what, ", "), logkey.Version, shard.Version)
	}
	return s.shardProto(shard), nil
}

func storedActor(a *csv1.Actor) store.Actor {
	return store.Actor{Name: a.GetName(), Reason: a.GetReason(), Ticket: a.GetTicket()}
}

func actorProto(a *store.Actor) *csv1.Actor {
	if a == nil {
		return nil
	}
	return &csv1.Actor{Name: a.Name, Reason: a.Reason, Ticket: a.Ticket}
}

// The settings that an operator may override.
const (
	fieldCapacity    = "capacity"
	fieldZones       = "zones"
	fieldSizeClasses = "size_classes"
	fieldLabels      = "labels"
)

// changeOffer applies a request to the overrides of a shard and returns the changes as text.
func (s *Service) changeOffer(shard *store.Shard, r *csv1.UpdateProvisionShardRequest) []string {
	before := map[string]string{fieldCapacity: fmt.Sprint(shard.Capacity()), fieldZones: listed(shard.Zones()), fieldSizeClasses: listed(shard.SizeClasses()), fieldLabels: labelled(shard.Labels())}
	was := overridden(shard)
	if r.Capacity != nil {
		shard.Override.Capacity = r.Capacity
	}
	if r.GetZones() != nil {
		shard.Override.Zones = append([]string{}, r.GetZones().GetValues()...)
	}
	if r.GetSizeClasses() != nil {
		shard.Override.SizeClasses = append([]string{}, r.GetSizeClasses().GetValues()...)
	}
	if r.GetLabels() != nil {
		shard.Override.Labels = map[string]string{}
		maps.Copy(shard.Override.Labels, r.GetLabels().GetValues())
	}
	for _, field := range r.GetUseConfigured() {
		switch field {
		case fieldCapacity:
			shard.Override.Capacity = nil
		case fieldZones:
			shard.Override.Zones = nil
		case fieldSizeClasses:
			shard.Override.SizeClasses = nil
		case fieldLabels:
			shard.Override.Labels = nil
		}
	}
	var changes []string
	after := map[string]string{fieldCapacity: fmt.Sprint(shard.Capacity()), fieldZones: listed(shard.Zones()), fieldSizeClasses: listed(shard.SizeClasses()), fieldLabels: labelled(shard.Labels())}
	now := overridden(shard)
	for _, field := range []string{fieldCapacity, fieldZones, fieldSizeClasses, fieldLabels} {
		switch {
		case before[field] != after[field]:
			changes = append(changes, fmt.Sprintf("%s %s → %s", strings.ReplaceAll(field, "_", " "), before[field], after[field]))
		case slices.Contains(was, field) != slices.Contains(now, field):
			changes = append(changes, fmt.Sprintf("%s %s, overriding the shards file: %t", strings.ReplaceAll(field, "_", " "), after[field], slices.Contains(now, field)))
		}
	}
	return changes
}

func overridden(shard *store.Shard) []string {
	var fields []string
	for field, is := range map[string]bool{fieldCapacity: shard.Override.Capacity != nil, fieldZones: shard.Override.Zones != nil,
		fieldSizeClasses: shard.Override.SizeClasses != nil, fieldLabels: shard.Override.Labels != nil} {
		if is {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

func listed(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, ", ")
}

func labelled(labels map[string]string) string {
	var values []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		values = append(values, key+"="+labels[key])
	}
	return listed(values)
}

func (c *check) problems(lists ...[]placement.Violation) {
	for _, problem := range slices.Concat(lists...) {
		c.fail(problem.Field, "%s", problem.Message)
	}
}

func (s *Service) shardProto(shard *store.Shard) *csv1.ProvisionShard {
	state := csv1.ProvisionShardState_PROVISION_SHARD_STATE_DEREGISTERED
	if !shard.Deregistered {
		state = shardState(shard.State())
	}
	return &csv1.ProvisionShard{Name: shard.Name, Capacity: shard.Capacity(), Clusters: shard.Clusters, Cordoned: shard.State() != placement.Active,
		State: state, Zones: shard.Zones(), SizeClasses: shard.SizeClasses(), Labels: shard.Labels(), Overridden: overridden(shard),
		Headroom: max(0, shard.Capacity()-shard.Clusters), LastHeardTime: optionalTime(shard.LastReport), LastHeartbeatTime: optionalTime(shard.LastHeartbeat), UnansweredSince: optionalTime(shard.UnansweredSince),
		AgentSilent: shard.Unresponsive(s.o.Store.Now(), s.rules().Silence()), Version: shard.Version, StateActor: actorProto(shard.StateActor),
		StateTime: optionalTime(shard.StateTime)}
}

// shardState returns the value of the API for a state; UNSPECIFIED for a state that is not one of placement.States.
func shardState(state placement.State) csv1.ProvisionShardState {
	switch state {
	case placement.Active:
		return csv1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE
	case placement.Cordoned:
		return csv1.ProvisionShardState_PROVISION_SHARD_STATE_CORDONED
	case placement.Draining:
		return csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING
	case placement.Retired:
		return csv1.ProvisionShardState_PROVISION_SHARD_STATE_RETIRED
	}
	return csv1.ProvisionShardState_PROVISION_SHARD_STATE_UNSPECIFIED
}

func optionalTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
