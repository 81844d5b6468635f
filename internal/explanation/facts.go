package explanation

import (
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Facts are what the layers know of one cluster at one time. A layer that could not be asked leaves its facts empty and is
// named in Silent.
type Facts struct {
	// Now is when the facts were taken.
	Now time.Time
	// Asked is what the operator called the cluster, and Matches the ARM resource ids of all clusters that it may mean: one,
	// unless the name is unknown or ambiguous.
	Asked   string
	Matches []string

	// Records are the cluster, its node pools and its external auths as Cosmos DB keeps them; Operations are those on any of
	// them that are kept.
	Records    []Record
	Operations []Operation

	// The rest is Cluster Service's.

	Cluster       *csv1.Cluster
	NodePools     []*csv1.NodePool
	ExternalAuths []*csv1.ExternalAuth
	Credentials   []*csv1.BreakGlassCredential
	Revocations   []*csv1.BreakGlassRevocation
	Upgrades      []*csv1.Upgrade
	Shards        []*csv1.ProvisionShard

	// Deletions are those under way, with the steps of the layers that could be asked; of a cluster that goes, its own alone.
	Deletions []deletion.Graph

	Silent []Silence
}

// Record is a resource as the customer asked for it.
type Record struct {
	ResourceID        string
	UID               string
	Generation        int64
	ProvisioningState string
	// ActiveOperation is the id of the operation under way; empty when none is.
	ActiveOperation string
}

// Operation is one of ARM's asynchronous operations.
type Operation struct {
	ID string
	// Request is Create, Update, Delete, RequestCredential or RevokeCredentials.
	Request    string
	ResourceID string
	// Status is a provisioning state; Code and Message say why it is Failed or Canceled.
	Status        string
	Code, Message string
	StartTime     time.Time
	// EndTime is zero while it is under way. Deadline is when it fails if it is not at its end; zero when that is not known.
	EndTime, Deadline time.Time
}

// Silence is a layer that could not be asked.
type Silence struct {
	// Layer is a process, as in cluster-service.
	Layer string
	Error string
}

// record finds a resource's; nil when there is none.
func (f *Facts) record(resourceID string) *Record {
	for i := range f.Records {
		if strings.EqualFold(f.Records[i].ResourceID, resourceID) {
			return &f.Records[i]
		}
	}
	return nil
}

// operation is the one under way on a resource, or else the last one that ended; nil when none is kept.
func (f *Facts) operation(resourceID string) *Operation {
	var newest *Operation
	for i := range f.Operations {
		o := &f.Operations[i]
		if !strings.EqualFold(o.ResourceID, resourceID) {
			continue
		}
		if newest == nil || newest.ended() && (!o.ended() || o.StartTime.After(newest.StartTime)) {
			newest = o
		}
	}
	return newest
}

// deletionOf is the deletion of a resource that is under way; nil when there is none.
func (f *Facts) deletionOf(resourceID string) *deletion.Graph {
	for i := range f.Deletions {
		if strings.EqualFold(f.Deletions[i].ResourceID, resourceID) {
			return &f.Deletions[i]
		}
	}
	return nil
}

func (o *Operation) ended() bool {
	return o.Status == "Succeeded" || o.Status == "Failed" || o.Status == "Canceled"
}

func (f *Facts) silent(layer string) bool {
	for _, s := range f.Silent {
		if s.Layer == layer {
			return true
		}
	}
	return false
}

// clusterID is the ARM resource id of the cluster that the facts are about; empty when there is none.
func (f *Facts) clusterID() string {
	switch {
	case len(f.Matches) == 1:
		return f.Matches[0]
	case f.Cluster != nil:
		return f.Cluster.GetResourceId()
	}
	return ""
}

// nameOf is the last part of a resource id.
func nameOf(resourceID string) string { return resourceID[strings.LastIndexByte(resourceID, '/')+1:] }

// child says whether a resource is one of a cluster's, of a kind as resource ids name it.
func child(resourceID, cluster, kind string) bool {
	prefix := strings.ToLower(cluster + "/" + kind + "/")
	return cluster != "" && strings.HasPrefix(strings.ToLower(resourceID), prefix)
}
