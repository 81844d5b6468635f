// Package service implements Cluster Service's gRPC API. Each write is one transaction over one cluster aggregate: it
// validates the request, stores the desired state, places a new cluster and runs the state machine. The response follows
// the commit, and the rows then contain all follow-up work. Writes are idempotent by UID and generation. Reads do not lock.
package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Domain is the domain of the ErrorInfo of errors.
const Domain = "clusterservice.hcpmesh"

// The reasons of errors.
const (
	ReasonUIDDeleted        = "UID_DELETED"
	ReasonResourceIDInUse   = "RESOURCE_ID_IN_USE"
	ReasonClusterUnknown    = "CLUSTER_UNKNOWN"
	ReasonClusterDeleting   = "CLUSTER_DELETING"
	ReasonNodePoolUnknown   = "NODE_POOL_UNKNOWN"
	ReasonReleaseUnknown    = "RELEASE_UNKNOWN"
	ReasonRevisionCompacted = "REVISION_COMPACTED"

	ReasonShardUnknown       = "PROVISION_SHARD_UNKNOWN"
	ReasonShardExists        = "PROVISION_SHARD_EXISTS"
	ReasonShardKeyMissing    = "PROVISION_SHARD_KEY_MISSING"
	ReasonShardChanged       = "PROVISION_SHARD_CHANGED"
	ReasonShardNotConfigured = "PROVISION_SHARD_NOT_CONFIGURED"
	ReasonShardNotCordoned   = "PROVISION_SHARD_NOT_CORDONED"
	ReasonShardNotEmpty      = "PROVISION_SHARD_NOT_EMPTY"
	ReasonLastShard          = "LAST_PROVISION_SHARD"

	ReasonExternalAuthUnknown    = "EXTERNAL_AUTH_UNKNOWN"
	ReasonExternalAuthExists     = "EXTERNAL_AUTH_EXISTS"
	ReasonCredentialUnknown      = "BREAK_GLASS_CREDENTIAL_UNKNOWN"
	ReasonCredentialNotRevocable = "BREAK_GLASS_CREDENTIAL_NOT_REVOCABLE"
	ReasonElevationRevoked       = "ELEVATION_REVOKED"
	ReasonRevocationUnknown      = "BREAK_GLASS_REVOCATION_UNKNOWN"
	ReasonRevocationInProgress   = "REVOCATION_IN_PROGRESS"
	ReasonTooManyCredentials     = "TOO_MANY_CREDENTIALS"

	ReasonUpgradeUnknown = "UPGRADE_UNKNOWN"
	ReasonPolicyUnknown  = "UPGRADE_POLICY_UNKNOWN"

	ReasonStepUnknown     = "DELETION_STEP_UNKNOWN"
	ReasonStepNotForcible = "DELETION_STEP_NOT_FORCIBLE"
	ReasonNoDeletion      = "NO_DELETION_UNDER_WAY"

	ReasonControlPlaneNotLost = "CONTROL_PLANE_NOT_LOST"
	ReasonControlPlaneMissing = "CONTROL_PLANE_MISSING"
	ReasonControlPlaneChanged = "CONTROL_PLANE_CHANGED"
)

// Options configure the service.
type Options struct {
	// Log receives the log and audit records; nil discards them.
	Log      *slog.Logger
	Store    *store.Store
	Hub      *store.WatchHub
	Renderer *render.Renderer
	// Releases returns the newest release catalogue.
	Releases    Releases
	Keeper      *seal.Keys
	SigningKeys *signingkey.Pool
	// DeleteBundle requests the deletion of a Maestro bundle that is not a work.
	DeleteBundle func(ctx context.Context, b *maestro.Bundle) error
	// DeleteAzureOrphan deletes an orphan in Azure. It is nil in a region without Azure.
	DeleteAzureOrphan func(ctx context.Context, o store.AzureOrphan) (effect string, pending bool, err error)
}

// Releases is the source of the release catalogue.
type Releases interface{ Catalog() *release.Catalog }

// Service implements the API.
type Service struct {
	csv1.UnimplementedClusterServiceServer
	o        Options
	versions versionList
}

// New returns a service.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{o: o}
}

// answer converts an error to a gRPC status and logs unexpected errors.
func (s *Service) answer(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var known *apierror.Error
	switch {
	case errors.As(err, &known):
	case errors.Is(err, store.ErrCallRepeated):
		err = apierror.New(apierror.Conflict, "This call already took effect.").WithReason(clusterservice.ReasonCallDone)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = apierror.New(apierror.Unavailable, "The request was canceled before it completed.").WithCause(err)
	case store.IsUnavailable(err):
		err = apierror.New(apierror.Unavailable, "The database cannot be reached.").WithRetryAfter(time.Second).WithCause(err)
		s.o.Log.WarnContext(ctx, "the database is unavailable for a request", logkey.Error, err)
	default:
		s.o.Log.ErrorContext(ctx, "a request failed unexpectedly", logkey.Error, err)
	}
	return apierror.ToGRPC(err, Domain)
}

func failedPrecondition(reason, message string) error {
	return apierror.New(apierror.FailedPrecondition, "%s", message).WithReason(reason)
}

func unknown(reason, what, uid string) error {
	return apierror.New(apierror.NotFound, "There is no %s %s.", what, uid).WithReason(reason)
}

// ApplyCluster creates a cluster or stores a newer generation of it.
func (s *Service) ApplyCluster(ctx context.Context, r *csv1.ApplyClusterRequest) (*csv1.Cluster, error) {
	c, err := s.applyCluster(ctx, r)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return c.Proto(), nil
}

func (s *Service) applyCluster(ctx context.Context, r *csv1.ApplyClusterRequest) (*fleet.Cluster, error) {
	violations := validateIdentity(r.GetUid(), r.GetResourceId(), r.GetGeneration())
	violations = append(violations, validateClusterSpec(r.GetSpec())...)
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}
	uid := strings.ToLower(r.GetUid())
	for attempt := 0; ; attempt++ {
		var cluster *fleet.Cluster
		err := s.o.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) (err error) {
			cluster, err = s.changeCluster(ctx, tx, uid, r, attempt)
			return err
		})
		switch {
		case err == nil:
			return cluster, nil
		case store.IsResourceIDInUse(err):
			return nil, failedPrecondition(ReasonResourceIDInUse, "Another cluster uses the resource ID and is not fully deleted.")
		case store.IsPrefixInUse(err) && r.GetSpec().GetDns().GetBaseDomainPrefix() != "":
			return nil, apierror.InvalidFields([]apierror.Violation{{Field: "spec.dns.base_domain_prefix", Message: "Duplicate value: another cluster of the region has it"}})
		case store.IsPrefixInUse(err) && attempt < maxPrefixes:
			continue
		}
		return nil, err
	}
}

// maxPrefixes bounds the attempts to generate an unused prefix; one in 10^22 is used.
const maxPrefixes = 5

func (s *Service) changeCluster(ctx context.Context, tx *store.Tx, uid string, r *csv1.ApplyClusterRequest, attempt int) (*fleet.Cluster, error) {
	t, now := tx.Aggregates[uid], s.o.Store.Now()
	c := t.Cluster
	switch {
	case c == nil && r.GetMustExist():
		return nil, failedPrecondition(ReasonClusterUnknown, "Cluster Service has lost the cluster. The backend restores it.")
	case c != nil && c.Deleting():
		return nil, failedPrecondition(ReasonUIDDeleted, "The cluster is being deleted, or is deleted.")
	case c != nil && r.GetGeneration() == c.Generation:
		raised, err := s.raise(ctx, c, r.GetRecovery())
		if err != nil || !raised {
			return c, err
		}
		return c, s.settle(now, t)
	case c != nil && r.GetGeneration() < c.Generation:
		return c, nil
	}
	if c == nil {
		c = s.newCluster(uid, r, attempt, now)
		t.Cluster, c.Spec = c, r.GetSpec()
		if !recoversRelease(r.GetRecovery()) {
			chosen, err := s.newestRelease(r.GetSpec())
			if err != nil {
				return nil, err
			}
			c.Release = fleet.Release{Version: chosen.Version.String(), Image: chosen.Image}
		}
		placed, err := s.recover(ctx, tx, c, r.GetRecovery())
		if err != nil {
			return nil, err
		}
		if !placed {
			decision, err := tx.Place(ctx, c, t.PlacementNeeds(), s.rules())
			if err != nil {
				return nil, err
			}
			s.o.Log.InfoContext(ctx, "chose a provision shard for a cluster", logkey.ClusterUID, uid, logkey.ResourceID, c.ResourceID, logkey.Shard, decision.Shard, logkey.Decision, decision.Message())
		}
	} else {
		c.BeginUpdate(t)
		if _, err := s.raise(ctx, c, r.GetRecovery()); err != nil {
			return nil, err
		}
		if err := apierror.InvalidFields(changedClusterFields(c, r)); err != nil {
			return nil, err
		}
		if err := s.customerVersion(ctx, t, r, now); err != nil {
			return nil, err
		}
		// A customer who has recreated an identity can make the service notice it with any update.
		t.Azure.ReadIdentitiesAgain()
	}
	if err := validateStep(c.Generation, r.GetGeneration()); err != nil {
		return nil, err
	}
	c.Generation, c.Spec = r.GetGeneration(), r.GetSpec()
	if c.Shard != "" {
		s.o.Log.InfoContext(ctx, "stored the desired state of a cluster", logkey.ClusterUID, uid, logkey.ClusterID, c.ID(), logkey.ResourceID, c.ResourceID,
			logkey.Generation, c.Generation, logkey.Shard, c.Shard, logkey.Version, c.Release.Version)
	}
	return c, s.settle(now, t)
}

// settle runs the state machine and renders works. A spec that cannot be rendered is an error of the caller.
func (s *Service) settle(now time.Time, t *fleet.ClusterAggregate) error {
	if err := s.o.Renderer.Region.Settle(now, t, s.o.Renderer); err != nil {
		return apierror.InvalidFields([]apierror.Violation{{Field: "spec", Message: "Invalid value: " + err.Error()}})
	}
	return nil
}

func (s *Service) newCluster(uid string, r *csv1.ApplyClusterRequest, attempt int, now time.Time) *fleet.Cluster {
	// If no key is ready, the publisher creates one, so that no request waits for it.
	var sealed []byte
	if key := s.o.SigningKeys.Ready(); key != nil {
		sealed = s.o.Keeper.Seal(uid, key)
	}
	prefix := r.GetSpec().GetDns().GetBaseDomainPrefix()
	if prefix == "" {
		prefix = fleet.Prefix(uid, attempt)
	}
	return &fleet.Cluster{UID: uid, ResourceID: r.GetResourceId(), SigningKey: sealed, CreateTime: now,
		Status: &csv1.ClusterStatus{ClusterId: fleet.ClusterID(uid), BaseDomainPrefix: prefix}}
}

// newestRelease returns the release for a spec: the newest release of its minor version in its channel group, or the exact
// version of the experimental tag.
func (s *Service) newestRelease(spec *csv1.ClusterSpec) (*release.Release, error) {
	id, group := spec.GetVersion().GetId(), channelGroup(spec.GetVersion())
	catalog := s.o.Releases.Catalog()
	found, ok := catalog.Newest(id, group)
	refusal, isRefused := catalog.NewestRefusal(id, group)
	if exact := spec.GetExperiments()[experiment.ExactVersion]; exact != "" {
		found, ok = catalog.Exact(exact)
		refusal, isRefused = catalog.RefusalOf(exact)
	}
	switch {
	case !ok && isRefused:
		return nil, refusedRelease(refusal)
	case !ok:
		return nil, invalidVersion("Unsupported value: %q in channel group %q: supported values: %s", id, group, strings.Join(catalog.Minors(group), ", "))
	}
	return found, nil
}

func channelGroup(v *csv1.Version) string {
	if v.GetChannelGroup() == "" {
		return "stable"
	}
	return v.GetChannelGroup()
}

// read returns the stored resource with a UID. reason is the reason of the error for an unknown UID.
func read[T interface{ Proto() P }, P any](ctx context.Context, s *Service, uid string, find func(context.Context, string) (T, error), reason, kind string) (P, error) {
	var none P
	if err := validUID("uid", uid); err != nil {
		return none, s.answer(ctx, err)
	}
	found, err := find(ctx, uid)
	if errors.Is(err, store.ErrUnknown) {
		err = unknown(reason, kind, uid)
	}
	if err != nil {
		return none, s.answer(ctx, err)
	}
	return found.Proto(), nil
}

// GetCluster returns a cluster.
func (s *Service) GetCluster(ctx context.Context, r *csv1.GetClusterRequest) (*csv1.Cluster, error) {
	cluster, err := read(ctx, s, r.GetUid(), s.o.Store.Cluster, ReasonClusterUnknown, "cluster")
	if err != nil {
		return nil, err
	}
	if err := s.addConcerns(ctx, cluster); err != nil {
		return nil, s.answer(ctx, err)
	}
	return cluster, nil
}

// DeleteCluster requests the deletion of a cluster and its children. For an unknown UID it stores a tombstone.
func (s *Service) DeleteCluster(ctx context.Context, r *csv1.DeleteClusterRequest) (*csv1.Cluster, error) {
	if err := validDeletion(r.GetUid(), r.GetResourceId()); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid := strings.ToLower(r.GetUid())
	var cluster *fleet.Cluster
	err := s.o.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[uid], s.o.Store.Now()
		if t.Cluster == nil {
			t.Cluster = &fleet.Cluster{UID: uid, ResourceID: r.GetResourceId(), Spec: &csv1.ClusterSpec{}, CreateTime: now, DeleteTime: now,
				GoneTime: now, Status: &csv1.ClusterStatus{ClusterId: fleet.ClusterID(uid), Phase: csv1.ClusterPhase_CLUSTER_PHASE_DELETED}}
		}
		cluster = t.Cluster
		if cluster.Deleting() {
			return nil
		}
		s.o.Log.InfoContext(ctx, "started the deletion of a cluster", logkey.ClusterUID, uid, logkey.ClusterID, cluster.ID(), logkey.ResourceID, cluster.ResourceID)
		cluster.DeleteTime = now
		return s.settle(now, t)
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return cluster.Proto(), nil
}

// ApplyNodePool creates a node pool or stores a newer generation of it.
func (s *Service) ApplyNodePool(ctx context.Context, r *csv1.ApplyNodePoolRequest) (*csv1.NodePool, error) {
	violations := validateChild(r.GetUid(), r.GetResourceId(), r.GetClusterUid(), r.GetGeneration())
	violations = append(violations, validateNodePoolSpec(r.GetSpec())...)
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	if err := s.sameCluster(ctx, uid, clusterUID); err != nil {
		return nil, s.answer(ctx, err)
	}
	var pool *fleet.NodePool
	err := s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) (err error) {
		pool, err = s.changeNodePool(ctx, tx.Aggregates[clusterUID], uid, clusterUID, r)
		return err
	})
	if store.IsResourceIDInUse(err) {
		err = failedPrecondition(ReasonResourceIDInUse, "Another node pool uses the resource ID and is not fully deleted.")
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return pool.Proto(), nil
}

// sameCluster rejects a node pool that is known under another cluster, because this request does not lock that cluster's
// aggregate.
func (s *Service) sameCluster(ctx context.Context, uid, clusterUID string) error {
	known, err := s.o.Store.NodePool(ctx, uid)
	if errors.Is(err, store.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if known.ClusterUID != clusterUID {
		return apierror.InvalidFields([]apierror.Violation{{Field: "cluster_uid", Message: "Forbidden: field is immutable"}})
	}
	return nil
}

func (s *Service) changeNodePool(ctx context.Context, t *fleet.ClusterAggregate, uid, clusterUID string, r *csv1.ApplyNodePoolRequest) (*fleet.NodePool, error) {
	now, p := s.o.Store.Now(), t.Pool(uid)
	switch {
	case p != nil && p.Deleting():
		return nil, failedPrecondition(ReasonUIDDeleted, "The node pool is being deleted, or is deleted.")
	case p != nil && r.GetGeneration() <= p.Generation:
		return p, nil
	case t.Cluster == nil:
		return nil, failedPrecondition(ReasonClusterUnknown, "The cluster of the node pool does not exist in Cluster Service yet.")
	case t.Cluster.Deleting():
		return nil, failedPrecondition(ReasonClusterDeleting, "The cluster of the node pool is being deleted.")
	}
	chosen, err := s.nodePoolRelease(r.GetSpec(), p, t)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &fleet.NodePool{UID: uid, ClusterUID: clusterUID, ResourceID: r.GetResourceId(), CreateTime: now, Status: &csv1.NodePoolStatus{}}
		t.Pools = append(t.Pools, p)
	} else if err := apierror.InvalidFields(changedNodePoolFields(p, r)); err != nil {
		return nil, err
	}
	if err := validateStep(p.Generation, r.GetGeneration()); err != nil {
		return nil, err
	}
	if p.Generation > 0 {
		p.BeginUpdate(t)
	}
	p.Generation, p.Spec, p.Release = r.GetGeneration(), r.GetSpec(), chosen
	s.o.Log.InfoContext(ctx, "stored the desired state of a node pool", logkey.NodePoolUID, uid, logkey.ClusterUID, clusterUID, logkey.ResourceID, p.ResourceID,
		logkey.Generation, p.Generation, logkey.Version, p.Release.Version)
	return p, s.settle(now, t)
}

// nodePoolRelease chooses the release of a node pool. A release that was chosen for the same version, or by an upgrade, is
// kept. The nodes can always return to the version that they run, which ends an upgrade that does not make progress.
func (s *Service) nodePoolRelease(spec *csv1.NodePoolSpec, old *fleet.NodePool, t *fleet.ClusterAggregate) (fleet.Release, error) {
	id, c := spec.GetVersion().GetId(), t.Cluster
	if old != nil && old.Spec.GetVersion().GetId() == id {
		return old.Release, nil
	}
	if id == "" {
		// During an upgrade of the control plane, nodes can only join at the version that it still runs.
		if running, ok := s.o.Releases.Catalog().Exact(lowestVersion(c)); ok {
			return fleet.Release{Version: running.Version.String(), Image: running.Image}, nil
		}
		return c.Release, nil
	}
	catalog := s.o.Releases.Catalog()
	found, ok := catalog.Exact(id)
	if refusal, isRefused := catalog.RefusalOf(id); isRefused {
		return fleet.Release{}, refusedRelease(refusal)
	}
	if !ok {
		return fleet.Release{}, invalidVersion("Unsupported value: %q", id)
	}
	chosen := fleet.Release{Version: found.Version.String(), Image: found.Image}
	if old != nil && old.Status.GetVersion() == chosen.Version {
		return chosen, nil
	}
	controlPlane, err := release.ParseVersion(lowestVersion(c))
	if err != nil {
		return fleet.Release{}, err
	}
	var current *release.Version
	if old != nil {
		v, err := release.ParseVersion(old.Release.Version)
		if err != nil {
			return fleet.Release{}, err
		}
		current = &v
	}
	if rule := catalog.NodePoolRule(found.Version, current, controlPlane); rule != "" {
		return fleet.Release{}, apierror.InvalidFields([]apierror.Violation{{Field: "spec.version.id", Message: "Invalid value: " + quote(id) + ": " + rule}})
	}
	return chosen, nil
}

// lowestVersion returns the lowest version that the control plane runs, or the version that it is to run if it runs none.
func lowestVersion(c *fleet.Cluster) string {
	if active := c.Status.GetActiveVersions(); len(active) > 0 {
		return active[len(active)-1]
	}
	return c.Release.Version
}

// GetNodePool returns a node pool.
func (s *Service) GetNodePool(ctx context.Context, r *csv1.GetNodePoolRequest) (*csv1.NodePool, error) {
	return read(ctx, s, r.GetUid(), s.o.Store.NodePool, ReasonNodePoolUnknown, "node pool")
}

// DeleteNodePool requests the deletion of a node pool.
func (s *Service) DeleteNodePool(ctx context.Context, r *csv1.DeleteNodePoolRequest) (*csv1.NodePool, error) {
	if err := validDeletion(r.GetUid(), r.GetResourceId()); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid := strings.ToLower(r.GetUid())
	// A known node pool determines its cluster itself.
	clusterUID := strings.ToLower(r.GetClusterUid())
	known, err := s.o.Store.NodePool(ctx, uid)
	switch {
	case err == nil:
		clusterUID = known.ClusterUID
	case !errors.Is(err, store.ErrUnknown):
		return nil, s.answer(ctx, err)
	default:
		if err := validUID("cluster_uid", clusterUID); err != nil {
			return nil, s.answer(ctx, err)
		}
	}
	var pool *fleet.NodePool
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[clusterUID], s.o.Store.Now()
		pool = t.Pool(uid)
		if pool == nil {
			pool = t.AddUnknownPool(now, uid, clusterUID, r.GetResourceId())
		}
		if pool.Deleting() {
			return nil
		}
		s.o.Log.InfoContext(ctx, "started the deletion of a node pool", logkey.NodePoolUID, uid, logkey.ClusterUID, clusterUID, logkey.ResourceID, pool.ResourceID)
		pool.DeleteTime = now
		return s.settle(now, t)
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return pool.Proto(), nil
}
