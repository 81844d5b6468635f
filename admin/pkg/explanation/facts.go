package explanation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// facts holds what the layers reported about one cluster at one time. The fields of a layer that could not be read are
// empty, and the layer is a key of unavailable.
type facts struct {
	// now is when the facts were read.
	now    time.Time
	target adminv1.Cluster
	// name is the identifier that the caller used for the cluster.
	name string

	// records are the cluster, its node pools and its external authentications in Cosmos DB; operations are ARM's operations
	// on any of them.
	records    []record
	operations []operation

	// Cluster Service reported the following.

	cluster       *csv1.Cluster
	nodePools     []*csv1.NodePool
	externalAuths []*csv1.ExternalAuth
	credentials   []*csv1.BreakGlassCredential
	revocations   []*csv1.BreakGlassRevocation
	upgrades      []*csv1.Upgrade
	shards        []*csv1.ProvisionShard

	// deletions are in progress. The deletion of the cluster includes those of its children.
	deletions []deletion.Graph

	// health is what monitor states about the API; nil if that could not be read.
	health *adminv1.Health

	unavailable map[string]string
	// components are the components of the region, with the API server of the cluster if it was asked.
	components []adminv1.Component
	// unfound is true if the cluster could not be looked up.
	unfound bool
}

// record is the desired state of an ARM resource.
type record struct {
	resourceID        string
	uid               string
	generation        int64
	provisioningState string
}

// operation is an asynchronous operation of ARM.
type operation struct {
	id string
	// request is Create, Update, Delete, RequestCredential or RevokeCredentials.
	request    string
	resourceID string
	// status is a provisioning state; code and message are the error of a failed or canceled operation.
	status        string
	code, message string
	started       time.Time
	// ended is zero while the operation is in progress. deadline is when it fails; zero if that is unknown.
	ended, deadline time.Time
}

func (o *operation) terminal() bool {
	return o.status == "Succeeded" || o.status == "Failed" || o.status == "Canceled"
}

// factsOf reads the facts from a dump.
func factsOf(name string, dump *adminv1.Dump) *facts {
	f := &facts{now: dump.TakenAt, target: dump.Cluster, name: cmp.Or(name, dump.Cluster.ResourceID), unavailable: dump.Unavailable}
	if dump.ARM != nil {
		f.readARM(dump.ARM)
	}
	if fleet := dump.ClusterService; fleet != nil {
		if fleet.Cluster != nil {
			f.cluster = fleet.Cluster.Of
		}
		f.nodePools, f.externalAuths = adminv1.Contents(fleet.NodePools), adminv1.Contents(fleet.ExternalAuths)
		f.credentials, f.revocations = adminv1.Contents(fleet.Credentials), adminv1.Contents(fleet.Revocations)
		f.upgrades, f.shards = adminv1.Contents(fleet.Upgrades), adminv1.Contents(fleet.ProvisionShards)
	}
	if dump.Monitor != nil {
		f.health = &dump.Monitor.Health
	}
	f.deletions = slices.DeleteFunc(deletion.Graphs(dump), func(g deletion.Graph) bool { return g.Done })
	return f
}

func (f *facts) readARM(arm *adminv1.ARMLayer) {
	experiments := map[string]map[string]string{}
	add := func(id string, state adminv1.ARMState, inEffect map[string]string) {
		f.records = append(f.records, record{resourceID: id, uid: state.UID, generation: state.Generation, provisioningState: string(state.ProvisioningState)})
		experiments[strings.ToLower(id)] = inEffect
	}
	if c := arm.Cluster; c != nil {
		add(c.Resource.ID, c.ARMState, c.Resource.Experiments)
	}
	for _, p := range arm.NodePools {
		add(p.Resource.ID, p.ARMState, p.Resource.Experiments)
	}
	for _, a := range arm.ExternalAuths {
		add(a.Resource.ID, a.ARMState, nil)
	}
	for _, o := range arm.Operations {
		read := operation{
			id: o.OperationID, request: o.Request, resourceID: o.ResourceID, status: string(o.Status), started: o.StartTime,
			deadline: deadlineOf(o, experiments[strings.ToLower(o.ResourceID)]),
		}
		if o.EndTime != nil {
			read.ended = *o.EndTime
		}
		if o.Error != nil {
			read.code, read.message = o.Error.Code, o.Error.Message
		}
		f.operations = append(f.operations, read)
	}
}

// deadlineOf returns when the backend fails an operation that has not completed: by the experimental tags in effect for
// the resource, or else by its default configuration.
func deadlineOf(o adminv1.ARMOperation, inEffect map[string]string) time.Time {
	creation, deletion := experiment.Deadlines(inEffect)
	switch {
	case o.Request == "Delete":
		return o.StartTime.Add(cmp.Or(deletion, asyncoperation.DeleteDeadline))
	case o.Request == "Create":
		return o.StartTime.Add(cmp.Or(creation, asyncoperation.CreateDeadline))
	}
	return o.StartTime.Add(asyncoperation.CreateDeadline)
}

// record returns the record of a resource; nil if there is none.
func (f *facts) record(resourceID string) *record {
	for i := range f.records {
		if strings.EqualFold(f.records[i].resourceID, resourceID) {
			return &f.records[i]
		}
	}
	return nil
}

// operation returns the operation in progress on a resource, or else the one that started last; nil if none is stored.
func (f *facts) operation(resourceID string) *operation {
	var newest *operation
	for i := range f.operations {
		o := &f.operations[i]
		if !strings.EqualFold(o.resourceID, resourceID) {
			continue
		}
		if newest == nil || newest.terminal() && (!o.terminal() || o.started.After(newest.started)) {
			newest = o
		}
	}
	return newest
}

// deletionOf returns the deletion of a resource that is in progress; nil if there is none.
func (f *facts) deletionOf(resourceID string) *deletion.Graph {
	for i := range f.deletions {
		if strings.EqualFold(f.deletions[i].ResourceID, resourceID) {
			return &f.deletions[i]
		}
	}
	return nil
}

// missing reports whether a layer could not be read.
func (f *facts) missing(layer string) bool {
	_, missing := f.unavailable[layer]
	return missing
}

// uid returns the UID of the cluster from Cluster Service, or from ARM if Cluster Service does not have the cluster.
func (f *facts) uid() string {
	if record := f.record(f.target.ResourceID); record != nil && f.cluster == nil {
		return record.uid
	}
	return f.cluster.GetUid()
}

// lastSegment returns the last segment of a resource ID.
func lastSegment(resourceID string) string {
	return resourceID[strings.LastIndexByte(resourceID, '/')+1:]
}

// isChild reports whether a resource is a child of a cluster, of a type as it appears in resource IDs.
func isChild(resourceID, cluster, resourceType string) bool {
	prefix := strings.ToLower(cluster + "/" + resourceType + "/")
	return cluster != "" && strings.HasPrefix(strings.ToLower(resourceID), prefix)
}
