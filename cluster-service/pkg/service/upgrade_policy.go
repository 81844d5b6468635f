package service

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

var policyName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

const (
	maxConcurrent = 1000
	maxFilters    = 50
	maxLeftOut    = 50
)

// ApplyUpgradePolicy stores a policy.
func (s *Service) ApplyUpgradePolicy(ctx context.Context, r *csv1.ApplyUpgradePolicyRequest) (*csv1.UpgradePolicy, error) {
	var c check
	c.matches("name", r.GetName(), policyName)
	c.actor("actor", r.GetActor())
	c.policy(r.GetSpec())
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	if uid := r.GetSpec().GetClusterUid(); uid != "" {
		r.Spec.ClusterUid = strings.ToLower(uid)
	}
	policy, err := s.o.Store.SaveUpgradePolicy(ctx, r.GetName(), r.GetSpec(), r.GetActor())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "an upgrade policy is stored", r.GetSpec().GetClusterUid(), r.GetActor(), logkey.UpgradePolicy, r.GetName())
	return policy, nil
}

func (c *check) policy(spec *csv1.UpgradePolicySpec) {
	if spec == nil {
		c.fail("spec", "Required value")
		return
	}
	if uid := spec.GetClusterUid(); uid != "" {
		c.uuid("spec.cluster_uid", uid)
		if len(spec.GetChannelGroups())+len(spec.GetMinorVersions())+len(spec.GetProvisionShards()) > 0 {
			c.fail("spec.cluster_uid", "Forbidden: must not be set together with channel groups, minor versions or provision shards")
		}
	}
	for field, list := range map[string][]string{"channel_groups": spec.GetChannelGroups(), "minor_versions": spec.GetMinorVersions(), "provision_shards": spec.GetProvisionShards()} {
		if len(list) > maxFilters {
			c.fail("spec."+field, "Too many: must have at most %d items", maxFilters)
		}
	}
	for _, group := range spec.GetChannelGroups() {
		c.oneOf("spec.channel_groups", group, "stable", "fast", "candidate", "nightly")
	}
	for _, minor := range spec.GetMinorVersions() {
		c.matches("spec.minor_versions", minor, minorPattern)
	}
	c.within("spec.max_concurrent", spec.GetMaxConcurrent(), 0, maxConcurrent)
	if _, err := upgradeplan.ParseSchedule(spec.GetSchedule()); err != nil {
		c.fail("spec.schedule", "Invalid value: %s", err)
	}
}

// GetUpgradePolicy returns a policy with its current status.
func (s *Service) GetUpgradePolicy(ctx context.Context, r *csv1.GetUpgradePolicyRequest) (*csv1.UpgradePolicy, error) {
	policy, err := s.o.Store.UpgradePolicy(ctx, r.GetName())
	if errors.Is(err, store.ErrUnknown) {
		err = unknown(ReasonPolicyUnknown, "upgrade policy", r.GetName())
	}
	if err == nil {
		policy.Status, err = s.policyStatus(ctx, policy)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return policy, nil
}

func (s *Service) policyStatus(ctx context.Context, p *csv1.UpgradePolicy) (*csv1.UpgradePolicyStatus, error) {
	windows, err := upgradeplan.ParseSchedule(p.GetSpec().GetSchedule())
	if err != nil {
		return nil, err
	}
	status := &csv1.UpgradePolicyStatus{}
	open, until := windows.Open(s.o.Store.Now())
	status.Open = open && !p.GetSpec().GetPaused()
	if !until.IsZero() {
		status.Until = timestamppb.New(until)
	}
	running, _, err := s.o.Store.RunningUpgrades(ctx, p.GetName())
	if err != nil {
		return nil, err
	}
	status.Running = int32(running)
	all, err := s.o.Store.UpgradePolicies(ctx)
	if err != nil {
		return nil, err
	}
	err = pass.EachCandidacy(ctx, s.o.Store, p, all, s.o.Releases.Catalog(), func(c *fleet.Cluster, candidacy upgradeplan.Candidacy) {
		switch {
		case candidacy.Version != "":
			status.Remaining++
		case candidacy.Reason == "":
			status.UpToDate++
		case len(status.LeftOut) < maxLeftOut:
			status.LeftOut = append(status.LeftOut, &csv1.LeftOutCluster{ClusterUid: c.UID, ResourceId: c.ResourceID, Reason: candidacy.Reason})
		}
	})
	return status, err
}

// ListUpgradePolicies returns all policies without their status.
func (s *Service) ListUpgradePolicies(ctx context.Context, _ *csv1.ListUpgradePoliciesRequest) (*csv1.ListUpgradePoliciesResponse, error) {
	policies, err := s.o.Store.UpgradePolicies(ctx)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return &csv1.ListUpgradePoliciesResponse{Policies: policies}, nil
}

// DeleteUpgradePolicy deletes a policy. Its active upgrades continue.
func (s *Service) DeleteUpgradePolicy(ctx context.Context, r *csv1.DeleteUpgradePolicyRequest) (*csv1.DeleteUpgradePolicyResponse, error) {
	var c check
	c.actor("actor", r.GetActor())
	err := apierror.InvalidFields(c.violations)
	if err == nil {
		err = s.o.Store.DeleteUpgradePolicy(ctx, r.GetName())
	}
	if errors.Is(err, store.ErrUnknown) {
		err = unknown(ReasonPolicyUnknown, "upgrade policy", r.GetName())
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "an upgrade policy is removed", "", r.GetActor(), logkey.UpgradePolicy, r.GetName())
	return &csv1.DeleteUpgradePolicyResponse{}, nil
}
