package explanation

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/internal/deadline"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// FromDump reads the facts out of a dump. Asked is what the operator called the cluster.
func FromDump(asked string, dump *adminv1.Dump) *Facts {
	f := &Facts{Now: dump.TakenAt, Asked: asked, Matches: []string{dump.Cluster.ResourceID}}
	for layer, reason := range dump.Unavailable {
		f.Silent = append(f.Silent, Silence{Layer: layerNames[layer], Error: reason})
	}
	slices.SortFunc(f.Silent, func(a, b Silence) int { return strings.Compare(a.Layer, b.Layer) })
	if arm := dump.ARM; arm != nil {
		f.readARM(arm)
	}
	if fleet := dump.ClusterService; fleet != nil {
		if fleet.Cluster != nil {
			f.Cluster = fleet.Cluster.Of
		}
		f.NodePools, f.ExternalAuths = unwrap(fleet.NodePools), unwrap(fleet.ExternalAuths)
		f.Credentials, f.Revocations = unwrap(fleet.Credentials), unwrap(fleet.Revocations)
		f.Upgrades, f.Shards = unwrap(fleet.Upgrades), unwrap(fleet.ProvisionShards)
	}
	f.Deletions = slices.DeleteFunc(deletion.Graphs(dump), func(g deletion.Graph) bool { return g.Done })
	return f
}

// layerNames are those that a dump has for its layers, in the words of an answer.
var layerNames = map[string]string{adminv1.LayerARM: layerCosmos, adminv1.LayerClusterService: layerClusterService, adminv1.LayerMaestro: layerMaestro}

func unwrap[T proto.Message](list []adminv1.Message[T]) []T {
	var messages []T
	for _, m := range list {
		messages = append(messages, m.Of)
	}
	return messages
}

func (f *Facts) readARM(arm *adminv1.ARMLayer) {
	add := func(id string, s adminv1.ARMState) {
		f.Records = append(f.Records, Record{ResourceID: id, UID: s.UID, Generation: s.Generation,
			ProvisioningState: string(s.ProvisioningState), ActiveOperation: s.ActiveOperationID})
	}
	tags := map[string]map[string]string{}
	if c := arm.Cluster; c != nil {
		add(c.Resource.ID, c.ARMState)
		tags[strings.ToLower(c.Resource.ID)] = c.Resource.Tags
	}
	for _, p := range arm.NodePools {
		add(p.Resource.ID, p.ARMState)
		tags[strings.ToLower(p.Resource.ID)] = p.Resource.Tags
	}
	for _, a := range arm.ExternalAuths {
		add(a.Resource.ID, a.ARMState)
	}
	for _, o := range arm.Operations {
		operation := Operation{ID: o.OperationID, Request: o.Request, ResourceID: o.ResourceID, Status: string(o.Status), StartTime: o.StartTime,
			Deadline: deadlineOf(o, tags[strings.ToLower(o.ResourceID)])}
		if o.EndTime != nil {
			operation.EndTime = *o.EndTime
		}
		if o.Error != nil {
			operation.Code, operation.Message = o.Error.Code, o.Error.Message
		}
		f.Operations = append(f.Operations, operation)
	}
}

// deadlineOf is when an operation fails unless it is through, as the backend has it by default; zero where the resource's tags
// say otherwise.
func deadlineOf(o adminv1.ARMOperation, tags map[string]string) time.Time {
	for name := range tags {
		if experiment.IsDeadline(name) {
			return time.Time{}
		}
	}
	if o.Request == "Delete" {
		return o.StartTime.Add(deadline.Delete)
	}
	return o.StartTime.Add(deadline.Create)
}
