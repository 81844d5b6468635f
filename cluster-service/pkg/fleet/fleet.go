// Package fleet contains the resources of Cluster Service and their state machine. It derives the works of a cluster, and
// the status of the cluster, its node pools and other children, from the desired state and from what management clusters
// and Azure report. All functions are pure functions of their arguments.
//
// A ClusterAggregate, one cluster with all its children, is the unit that is locked, decided and stored as a whole. Package
// store stores it, package delivery exchanges its works with Maestro, and package azure carries out its steps in Azure.
package fleet

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Release is the OpenShift release of a cluster or node pool. It changes only by a request of the customer or by an
// upgrade.
type Release struct {
	Version string
	Image   string
}

// Cluster is the row of a cluster.
type Cluster struct {
	UID        string
	ResourceID string
	Generation int64
	// Spec is what is rendered. RequestedSpec returns the spec of the generation.
	Spec   *csv1.ClusterSpec
	Status *csv1.ClusterStatus
	Update
	// Shard is the provision shard that hosts the cluster; empty until it is placed.
	Shard string
	// PlacementMessage is the reason for which no shard accepted the cluster, directly after the decision. The status
	// stores it.
	PlacementMessage string
	Release          Release
	// Overrides are the settings that SREs set with actions; nil if there are none.
	Overrides *csv1.ClusterOverrides
	// SigningKey is the encrypted service account signing key.
	SigningKey []byte
	// Trace is the reference of the trace of the request that set the generation or requested the deletion; empty if it is not recorded.
	Trace      string
	Revision   int64
	CreateTime time.Time
	// DeleteTime is when the deletion was requested; zero if it was not.
	DeleteTime time.Time
	// GoneTime is when the deletion was complete. From then on the row is a tombstone.
	GoneTime time.Time
}

// Deleting reports whether the deletion was requested.
func (c *Cluster) Deleting() bool { return !c.DeleteTime.IsZero() }

// Gone reports whether only the tombstone is left.
func (c *Cluster) Gone() bool { return !c.GoneTime.IsZero() }

// ID returns the cluster ID.
func (c *Cluster) ID() string { return c.Status.GetClusterId() }

// Proto returns the cluster as a message of the API.
func (c *Cluster) Proto() *csv1.Cluster {
	return &csv1.Cluster{Uid: c.UID, ResourceId: c.ResourceID, Generation: c.Generation, Spec: c.RequestedSpec(), Status: c.Status,
		Revision: c.Revision, CreateTime: timestamp(c.CreateTime), DeleteTime: timestamp(c.DeleteTime), Overrides: c.Overrides,
		SealingKeyId: seal.KeyOf(c.SigningKey)}
}

// NodePool is the row of a node pool.
type NodePool struct {
	UID        string
	ClusterUID string
	ResourceID string
	Generation int64
	// Spec is like that of a cluster.
	Spec    *csv1.NodePoolSpec
	Status  *csv1.NodePoolStatus
	Release Release
	Update
	// Trace is like that of a cluster.
	Trace      string
	Revision   int64
	CreateTime time.Time
	DeleteTime time.Time
	GoneTime   time.Time
}

// Deleting reports whether the deletion was requested.
func (p *NodePool) Deleting() bool { return !p.DeleteTime.IsZero() }

// Gone reports whether only the tombstone is left.
func (p *NodePool) Gone() bool { return !p.GoneTime.IsZero() }

// Proto returns the node pool as a message of the API.
func (p *NodePool) Proto() *csv1.NodePool {
	return &csv1.NodePool{Uid: p.UID, ClusterUid: p.ClusterUID, ResourceId: p.ResourceID, Generation: p.Generation, Spec: p.RequestedSpec(),
		Status: p.Status, Revision: p.Revision, CreateTime: timestamp(p.CreateTime), DeleteTime: timestamp(p.DeleteTime)}
}

// WorkKind is the kind of content of a work.
type WorkKind int16

// The kinds of works. The values are stored and are those of the API.
const (
	// Namespaces are created first and deleted last.
	Namespaces WorkKind = 1
	// HostedCluster is the HostedCluster with the secrets that it refers to.
	HostedCluster WorkKind = 2
	// NodePoolWork is one NodePool.
	NodePoolWork WorkKind = 3
	// CredentialWork is the request for one break-glass credential with its approval.
	CredentialWork WorkKind = 4
	// RevocationWork is the request to revoke a class of credentials.
	RevocationWork WorkKind = 5
	// RolloutWork reads the components of a control plane during an upgrade. It applies nothing.
	RolloutWork WorkKind = 6
)

// WorkKinds returns all kinds.
func WorkKinds() []WorkKind {
	return []WorkKind{Namespaces, HostedCluster, NodePoolWork, CredentialWork, RevocationWork, RolloutWork}
}

// Work is one bundle of manifests for a management cluster, and the job that brings it there. It is due for publishing
// while Published is less than Desired, and from its deletion until the deletion is confirmed. Then the row is deleted.
type Work struct {
	// ID is the ID of the Maestro resource bundle.
	ID         string
	ClusterUID string
	// OwnerUID is the UID of the node pool, credential, revocation or upgrade that the work belongs to; empty if it belongs
	// to the cluster itself.
	OwnerUID string
	Kind     WorkKind
	Name     string
	Shard    string
	// Desired is the number of the desired content, counted from 1. Published is the number of the content that Maestro
	// acknowledged last.
	Desired   int64
	Published int64
	// Digest is the digest of the desired content, and Generation the generation of the resource that it was rendered from.
	Digest     string
	Generation int64
	// DeleteTime is when the deletion of the work was decided.
	DeleteTime time.Time
	// DeletePublished reports that Maestro acknowledged the deletion.
	DeletePublished bool
	// DeleteRequests is the number of acknowledged requests for the deletion.
	DeleteRequests int32
	// ReleaseFinalizers are finalizers that the agent removes from the objects of the work.
	ReleaseFinalizers []string
	// Version is the last known version of the Maestro resource; 0 if it is unknown or the resource was not created.
	Version int64
	// Sequence orders the status updates of the agent. It begins with the version of the Maestro resource that the last one is about.
	Sequence string
	// StatusHash is compared with Maestro's hash in a resync to find changed statuses.
	StatusHash string
	Observed   feedback.Observed
	// Attempts is the number of failures to publish since the last success. RetryTime is when the work is due next; while a
	// process publishes the work, it is the end of that process's lease.
	Attempts  int32
	RetryTime time.Time
	// Error is the last failure to publish. Refused reports that Maestro rejects the content and that a retry cannot
	// succeed.
	Error   string
	Refused bool
}

// Deleting reports whether the work is to be deleted.
func (w *Work) Deleting() bool { return !w.DeleteTime.IsZero() }

// Due reports whether the work has something to publish, regardless of RetryTime.
func (w *Work) Due() bool {
	if w.Deleting() {
		return true
	}
	return w.Published < w.Desired && !w.Refused
}

// Applied reports whether the management cluster has the desired content. The digest in the last status is not sufficient: content that
// returns to an earlier one has its digest, while Maestro and the agent may still deliver what was desired in between.
func (w *Work) Applied() bool {
	if w.Observed.Applied.Status != "True" || w.Observed.Missing {
		return false
	}
	if w.Kind == HostedCluster || w.Kind == NodePoolWork {
		return w.Observed.Digest == w.Digest && w.observedDesired()
	}
	// The content of other kinds never changes.
	return true
}

// observedDesired reports whether the last status, which has the digest of the desired content, is about that content and not about an
// earlier one with the same digest.
func (w *Work) observedDesired() bool {
	if w.Published >= w.Desired {
		return w.observedVersion() >= w.Version
	}
	// Maestro's answer is missing. A version above the last acknowledged one with this digest has the desired content, unless the answers
	// for two earlier contents were lost too.
	return w.observedVersion() > w.Version && (w.Version > 0 || w.Desired == 1)
}

// observedVersion returns the version of the Maestro resource that the last status is about, 0 if there was none.
func (w *Work) observedVersion() int64 {
	text, _, _ := strings.Cut(w.Sequence, " ")
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// Proto returns the work as a message of the API.
func (w *Work) Proto() *csv1.Work {
	return &csv1.Work{Id: w.ID, ClusterUid: w.ClusterUID, OwnerUid: w.OwnerUID, Kind: csv1.WorkKind(w.Kind), Name: w.Name, ProvisionShard: w.Shard,
		Desired: w.Desired, Published: w.Published, Generation: w.Generation, DeleteTime: timestamp(w.DeleteTime), DeletePublished: w.DeletePublished,
		Carried: w.Applied(), Attempts: w.Attempts, Error: w.Error, RetryTime: timestamp(w.RetryTime), Refused: w.Refused,
		Missing: w.Observed.Missing, ForeignFields: w.Observed.ForeignText()}
}

// ClusterAggregate is a cluster with all its children.
type ClusterAggregate struct {
	// Cluster is nil if the UID is unknown, or if a node pool was deleted before its cluster was applied.
	Cluster *Cluster
	Pools   []*NodePool
	// ExternalAuths are the external authentication that is not being deleted, if any, and those that are.
	ExternalAuths []*ExternalAuth
	// Credentials and Revocations do not include those that ended long ago.
	Credentials []*Credential
	Revocations []*Revocation
	// Upgrades do not include those that ended long ago.
	Upgrades []*Upgrade
	Works    []*Work
	// Azure are the cluster's Azure resources; nil if there are none.
	Azure *Azure
	// Leftovers are those that were forced in this transaction. Earlier ones are not part of the aggregate.
	Leftovers []*Leftover
}

// Pool returns the node pool with a UID, or nil.
func (t *ClusterAggregate) Pool(uid string) *NodePool {
	i := slices.IndexFunc(t.Pools, func(p *NodePool) bool { return p.UID == uid })
	if i < 0 {
		return nil
	}
	return t.Pools[i]
}

// Work returns the work of a kind and owner, or nil. The owner is empty for kinds of which a cluster has one.
func (t *ClusterAggregate) Work(kind WorkKind, owner string) *Work {
	i := slices.IndexFunc(t.Works, func(w *Work) bool { return w.Kind == kind && w.OwnerUID == owner })
	if i < 0 {
		return nil
	}
	return t.Works[i]
}

// WorkByID returns the work with an ID, or nil.
func (t *ClusterAggregate) WorkByID(id string) *Work {
	i := slices.IndexFunc(t.Works, func(w *Work) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return t.Works[i]
}

// Clone returns a deep copy, to compare with later.
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

// MinimalSize is the size class that the experimental tag of the customer requests. The ClusterSizingConfiguration of
// every management cluster must have a size with this name.
const MinimalSize = "minimal"

// Size returns the requested size class of the control plane. An override of an SRE takes precedence over the experimental
// tag of the customer. It is empty if the size follows from the cluster.
func (c *Cluster) Size() string {
	if size := c.Overrides.GetSize().GetSize(); size != "" {
		return size
	}
	if c.Spec.GetExperiments()[experiment.SizeOverride] == experiment.MinimalSize {
		return MinimalSize
	}
	return ""
}

// DesiredNodes returns the desired number of nodes of all node pools. Autoscaled pools count with their maximum.
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

// Nodes returns the number of existing nodes.
func (t *ClusterAggregate) Nodes() int32 {
	nodes := int32(0)
	for _, p := range t.Pools {
		nodes += p.Status.GetReplicas()
	}
	return nodes
}

// PlacementNeeds returns what a provision shard must offer for the cluster.
func (t *ClusterAggregate) PlacementNeeds() placement.Needs {
	return placement.Needs{Nodes: t.DesiredNodes(), SizeClass: t.Cluster.Size()}
}
