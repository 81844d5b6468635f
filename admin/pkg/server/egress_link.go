package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
)

func (s *Server) listEgressLinks(ctx context.Context, _ *request) (any, error) {
	var found []*database.EgressLinkDocument
	err := s.Database.EachEgressLink(ctx, func(item *database.Item[database.EgressLinkDocument]) error {
		found = append(found, &item.Value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Link IDs have no leading zeros, so that a longer one is a larger number.
	slices.SortFunc(found, func(a, b *database.EgressLinkDocument) int {
		return cmp.Or(len(a.LinkID)-len(b.LinkID), cmp.Compare(a.LinkID, b.LinkID))
	})
	list := adminv1.EgressLinkList{Items: []adminv1.EgressLink{}}
	for _, l := range found {
		shown := adminv1.EgressLink{LinkID: l.LinkID, Generation: l.Generation, Cluster: adminv1.EgressCluster{UID: l.ClusterUID, ResourceID: l.ResourceID},
			Hosts: slices.Concat([]string{}, l.Hosts), OperationID: l.OperationID, RequestTime: l.RequestTime, RemovedTime: l.RemovedTime}
		if l.RemovedTime != nil {
			reusable := l.RemovedTime.Add(database.EgressLinkQuarantine)
			shown.ReusableTime = &reusable
		}
		list.Items = append(list.Items, shown)
	}
	return list, nil
}

func (s *Server) setEgressLink(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.SetEgressLinkRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	id, err := database.ParseEgressLinkID(rq.http.PathValue("link"))
	if err != nil {
		return nil, err
	}
	hosts, err := canonicalHosts(asked.Hosts)
	if err != nil {
		return nil, err
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, adminv1.EgressLinkParameters{LinkID: strconv.FormatUint(uint64(id), 10), Hosts: hosts})
}

// canonicalHosts returns the canonical names of hosts, sorted and without repetitions.
func canonicalHosts(asked []string) ([]string, error) {
	if len(asked) > database.MaxEgressHosts {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "hosts", Message: fmt.Sprintf("Too many: %d: must have at most %d items", len(asked), database.MaxEgressHosts)}})
	}
	hosts := []string{}
	var invalid []apierror.Violation
	for i, host := range asked {
		canonical, err := publicaddress.CanonicalName(host)
		if err != nil {
			invalid = append(invalid, apierror.Violation{Field: fmt.Sprintf("hosts[%d]", i), Message: "Invalid value: " + err.Error()})
			continue
		}
		hosts = append(hosts, canonical)
	}
	if len(invalid) > 0 {
		return nil, apierror.InvalidFields(invalid)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}

// deleteEgressLink removes the link in the path. An elevation for the cluster of the link suffices.
func (s *Server) deleteEgressLink(ctx context.Context, rq *request) (any, error) {
	id, err := database.ParseEgressLinkID(rq.http.PathValue("link"))
	if err != nil {
		return nil, err
	}
	target := database.AdminTarget{Kind: "egressLink", ID: strconv.FormatUint(uint64(id), 10)}
	item, err := s.Database.EgressLinks().Find(ctx, database.EgressLinkKey(id))
	if err != nil {
		return nil, err
	}
	if item != nil && item.Value.RemovedTime == nil {
		target.ClusterUID, target.ResourceID = item.Value.ClusterUID, item.Value.ResourceID
	}
	return s.accept(ctx, rq, target, nil)
}
