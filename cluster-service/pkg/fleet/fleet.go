// Package fleet is the heart of Cluster Service: what a cluster, its node pools and their works on a management cluster
// are, and how their state follows from what was asked for and what is observed. Everything here is a pure function of
// its arguments. A ClusterAggregate, one cluster with everything that belongs to it, is the unit that is locked, decided and
// stored as a whole; package store keeps it, package delivery moves its works to and from Maestro.
package fleet

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// Release is the release that was chosen for a cluster or node pool. It changes only when the customer asks.
type Release struct {
	Version string
	Image   string
}

// Cluster is a cluster's row.
type Cluster struct {
	UID        string
	ResourceID string
	Generation int64
	Spec       *csv1.ClusterSpec
	Status     *csv1.ClusterStatus
	// Shard is the provision shard that hosts it; empty until placed.
	Shard string
	// PlacementMessage says why no shard can take it, where that has just been decided. It is kept in the status.
	PlacementMessage string
	Release          Release
	// Overrides is what SREs have decided over the spec; nil when nothing.
	Overrides *csv1.ClusterOverrides
	// SigningKey is the service account signing key, sealed.
	SigningKey []byte
	Revision   int64
	CreateTime time.Time
	// DeleteTime is when deletion was asked for; zero while the cluster is wanted.
	DeleteTime time.Time
	// GoneTime is when the deletion was complete; from then on the row is a tombstone.
	GoneTime time.Time
}

// Deleting says that deletion was asked for.
func (c *Cluster) Deleting() bool { return !c.DeleteTime.IsZero() }

// Gone says that only the tombstone is left.
func (c *Cluster) Gone() bool { return !c.GoneTime.IsZero() }

// ID is the id under which the fleet knows the cluster.
func (c *Cluster) ID() string { return c.Status.GetClusterId() }

// Proto is the cluster as the API shows it.
func (c *Cluster) Proto() *csv1.Cluster {
	return &csv1.Cluster{Uid: c.UID, ResourceId: c.ResourceID, Generation: c.Generation, Spec: c.Spec, Status: c.Status,
		Revision: c.Revision, CreateTime: timestamp(c.CreateTime), DeleteTime: timestamp(c.DeleteTime), Overrides: c.Overrides}
}

// NodePool is a node pool's row.
type NodePool struct {
	UID        string
	ClusterUID string
	ResourceID string
	Generation int64
	Spec       *csv1.NodePoolSpec
	Status     *csv1.NodePoolStatus
	Release    Release
	Revision   int64
	CreateTime time.Time
	DeleteTime time.Time
	GoneTime   time.Time
}

// Deleting says that deletion was asked for.
func (p *NodePool) Deleting() bool { return !p.DeleteTime.IsZero() }

// Gone says that only the tombstone is left.
func (p *NodePool) Gone() bool { return !p.GoneTime.IsZero() }

// Proto is the node pool as the API shows it.
func (p *NodePool) Proto() *csv1.NodePool {
	return &csv1.NodePool{Uid: p.UID, ClusterUid: p.ClusterUID, ResourceId: p.ResourceID, Generation: p.Generation, Spec: p.Spec,
		Status: p.Status, Revision: p.Revision, CreateTime: timestamp(p.CreateTime), DeleteTime: timestamp(p.DeleteTime)}
}

// WorkKind says what a work carries.
type WorkKind int16

// The works of a cluster.
const (
	// Namespaces are made first and deleted last.
	Namespaces WorkKind = 1
	// HostedCluster is the HostedCluster and the secrets it refers to.
	HostedCluster WorkKind = 2
	// NodePoolWork is one NodePool.
	NodePoolWork WorkKind = 3
	// CredentialWork is the request for one break-glass credential, and its approval.
	CredentialWork WorkKind = 4
	// RevocationWork is the request to revoke a class of credentials.
	RevocationWork WorkKind = 5
	// RolloutWork has the components of a control plane read while an upgrade rolls them out; nothing is applied.
	RolloutWork WorkKind = 6
)

// WorkKinds returns all kinds.
func WorkKinds() []WorkKind {
	return []WorkKind{Namespaces, HostedCluster, NodePoolWork, CredentialWork, RevocationWork, RolloutWork}
}

// Work is one bundle of manifests for a management cluster, and also the job that brings it there: it is due for
// publishing while Published is behind Desired, or while it is to be deleted and not gone. The row goes when the deletion
// is confirmed.
type Work struct {
	// ID is the Maestro resource id.
	ID         string
	ClusterUID string
	// OwnerUID is the node pool, credential, revocation or upgrade that the work is for; empty when it is the cluster itself.
	OwnerUID string
	Kind     WorkKind
	Name     string
	Shard    string
	// Desired counts the contents that were wanted, Published is the last one that Maestro acknowledged.
	Desired   int64
	Published int64
	// Digest and Generation are of the desired content: its rendering, and the generation of the resource it was rendered from.
	Digest     string
	Generation int64
	// DeleteTime is when its deletion was decided.
	DeleteTime time.Time
	// DeletePublished says that Maestro acknowledged the deletion.
	DeletePublished bool
	// DeleteRequests counts how often Maestro acknowledged the deletion.
	DeleteRequests int32
	// ReleaseFinalizers are finalizers that the agent is told to take off what the deletion waits for.
	ReleaseFinalizers []string
	// Version is Maestro's resource version as last learnt; 0 when unknown or not created.
	Version int64
	// Sequence orders the agent's status updates.
	Sequence string
	// StatusHash is the hash by which a resync finds out whether the status changed.
	StatusHash string
	Observed   feedback.Observed
	// Attempts counts failures to publish since the last success; RetryTime is when the work is next due, and while
	// somebody is publishing it, when another may take over.
	Attempts  int32
	RetryTime time.Time
	// Error is the last failure to publish; Refused says that Maestro will not take this content at all.
	Error   string
	Refused bool
}

// Deleting says that the work is to be deleted.
func (w *Work) Deleting() bool { return !w.DeleteTime.IsZero() }

// Due says that there is something to publish, when its time has come.
func (w *Work) Due() bool {
	if w.Deleting() {
		return true
	}
	return w.Published < w.Desired && !w.Refused
}

// Applied says that the management cluster has the desired content.
func (w *Work) Applied() bool {
	if w.Observed.Applied.Status != "True" {
		return false
	}
	if w.Kind == HostedCluster || w.Kind == NodePoolWork {
		return w.Observed.Digest == w.Digest
	}
	// The content of the others never changes.
	return true
}

// Proto is the work as the API shows it.
func (w *Work) Proto() *csv1.Work {
	return &csv1.Work{Id: w.ID, ClusterUid: w.ClusterUID, OwnerUid: w.OwnerUID, Kind: csv1.WorkKind(w.Kind), Name: w.Name, ProvisionShard: w.Shard,
		Desired: w.Desired, Published: w.Published, Generation: w.Generation, DeleteTime: timestamp(w.DeleteTime), DeletePublished: w.DeletePublished,
		Carried: w.Applied(), Attempts: w.Attempts, Error: w.Error, RetryTime: timestamp(w.RetryTime), Refused: w.Refused}
}

// ClusterAggregate is a cluster and all that belongs to it.
type ClusterAggregate struct {
	// Cluster is nil when nothing is known of the uid, or when a node pool was deleted before its cluster was applied.
	Cluster *Cluster
	Pools   []*NodePool
	// ExternalAuths are the one that is wanted and those that are deleted.
	ExternalAuths []*ExternalAuth
	// Credentials and Revocations are without those that came to an end long ago.
	Credentials []*Credential
	Revocations []*Revocation
	// Upgrades are without those that came to an end long ago.
	Upgrades []*Upgrade
	Works    []*Work
	// Azure is what the cluster has in Azure; nil when nothing.
	Azure *Azure
	// Leftovers are those that were forced in this transaction; the earlier ones are not part of the aggregate.
	Leftovers []*Leftover
}

// Pool finds a node pool; nil when unknown.
func (t *ClusterAggregate) Pool(uid string) *NodePool {
	i := slices.IndexFunc(t.Pools, func(p *NodePool) bool { return p.UID == uid })
	if i < 0 {
		return nil
	}
	return t.Pools[i]
}

// Work finds the work of a kind and owner, who is empty where the kind is one per cluster; nil when there is none.
func (t *ClusterAggregate) Work(kind WorkKind, owner string) *Work {
	i := slices.IndexFunc(t.Works, func(w *Work) bool { return w.Kind == kind && w.OwnerUID == owner })
	if i < 0 {
		return nil
	}
	return t.Works[i]
}

// WorkByID finds a work; nil when there is none.
func (t *ClusterAggregate) WorkByID(id string) *Work {
	i := slices.IndexFunc(t.Works, func(w *Work) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return t.Works[i]
}

// Clone is a deep copy, to compare with later.
func (t *ClusterAggregate) Clone() *ClusterAggregate {
	c := &ClusterAggregate{Azure: t.Azure.Clone()}
	if t.Cluster != nil {
		cluster := *t.Cluster
		cluster.Spec, cluster.Status = proto.CloneOf(t.Cluster.Spec), proto.CloneOf(t.Cluster.Status)
		cluster.Overrides = proto.CloneOf(t.Cluster.Overrides)
		c.Cluster = &cluster
	}
	for _, p := range t.Pools {
		pool := *p
		pool.Spec, pool.Status = proto.CloneOf(p.Spec), proto.CloneOf(p.Status)
		c.Pools = append(c.Pools, &pool)
	}
	for _, a := range t.ExternalAuths {
		auth := *a
		auth.Spec, auth.Status = proto.CloneOf(a.Spec), proto.CloneOf(a.Status)
		c.ExternalAuths = append(c.ExternalAuths, &auth)
	}
	for _, k := range t.Credentials {
		credential := *k
		credential.Status = proto.CloneOf(k.Status)
		c.Credentials = append(c.Credentials, &credential)
	}
	for _, v := range t.Revocations {
		revocation := *v
		revocation.Status = proto.CloneOf(v.Status)
		c.Revocations = append(c.Revocations, &revocation)
	}
	for _, u := range t.Upgrades {
		upgrade := *u
		upgrade.Status = proto.CloneOf(u.Status)
		c.Upgrades = append(c.Upgrades, &upgrade)
	}
	for _, w := range t.Works {
		work := *w
		work.ReleaseFinalizers = slices.Clone(w.ReleaseFinalizers)
		c.Works = append(c.Works, &work)
	}
	return c
}

// Size is the size that was asked for, an SRE's before the customer's; empty when it follows from the cluster.
func (c *Cluster) Size() string {
	if size := c.Overrides.GetSize().GetSize(); size != "" {
		return size
	}
	return c.Spec.GetExperiments()[experiment.SizeOverride]
}

// DesiredNodes are those that the node pools were asked for, the maximum where they autoscale.
func (t *ClusterAggregate) DesiredNodes() int32 {
	nodes := int64(0)
	for _, p := range t.Pools {
		if p.Deleting() {
			continue
		}
		switch size := p.Spec.GetSize().(type) {
		case *csv1.NodePoolSpec_Replicas:
			nodes += int64(size.Replicas)
		case *csv1.NodePoolSpec_Autoscaling:
			nodes += int64(size.Autoscaling.GetMax())
		}
	}
	return int32(min(nodes, math.MaxInt32))
}

// Nodes are those that exist.
func (t *ClusterAggregate) Nodes() int32 {
	nodes := int32(0)
	for _, p := range t.Pools {
		nodes += p.Status.GetReplicas()
	}
	return nodes
}

// PlacementNeeds is what a place for the cluster must offer.
func (t *ClusterAggregate) PlacementNeeds() placement.Needs {
	return placement.Needs{Nodes: t.DesiredNodes(), SizeClass: t.Cluster.Size()}
}
