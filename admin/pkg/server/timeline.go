package server

import (
	"context"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/dump"
	"github.com/hcpmesh/hcpmesh/admin/pkg/timeline"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// timelinePeriod is the length of a timeline without a parameter from: that for which Cluster Service stores changes.
const timelinePeriod = 14 * 24 * time.Hour

// timelineBudget bounds the time to read all layers. What did not respond until then is named in the timeline.
const timelineBudget = 12 * time.Second

// maxTimelineRecords is the number of the newest actions and of the newest audit records that a timeline reads.
const maxTimelineRecords = 500

// showTimeline returns the timeline of a cluster. A layer that cannot be read makes it partial.
func (s *Server) showTimeline(ctx context.Context, rq *request) (any, error) {
	from, to, err := rq.period(time.Now().UTC())
	if err != nil {
		return nil, err
	}
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	rq.audited.object = audit.Object{Kind: "cluster", ID: cluster.UID, ResourceID: cluster.ResourceID, Cluster: cluster.UID}
	return timeline.Of(s.timelineSources(ctx, cluster, from, to), from, to), nil
}

// period returns the values of the parameters from and to.
func (rq *request) period(now time.Time) (from, to time.Time, err error) {
	from, to = now.Add(-timelinePeriod), now
	for name, value := range map[string]*time.Time{"from": &from, "to": &to} {
		text := rq.http.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *value, err = time.Parse(time.RFC3339, text); err != nil {
			return from, to, apierror.New(apierror.InvalidParameter, "Invalid value: '%s': must be a time such as 2026-11-24T03:00:00Z.", text).WithTarget(name)
		}
	}
	if to.Before(from) {
		return from, to, apierror.New(apierror.InvalidParameter, "Invalid value: must not be before the time of from.").WithTarget("to")
	}
	return from.UTC(), to.UTC(), nil
}

// timelineSources reads all layers concurrently. Prometheus is asked about the period; the other layers return all that they have.
func (s *Server) timelineSources(ctx context.Context, cluster adminv1.Cluster, from, to time.Time) timeline.Sources {
	ctx, cancel := context.WithTimeout(ctx, timelineBudget)
	defer cancel()
	sources := timeline.Sources{Effects: map[string]string{}, Unavailable: map[string]string{}}
	var all sync.WaitGroup
	var mu sync.Mutex
	read := func(layer string, from func() error) {
		all.Go(func() {
			if err := from(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				sources.Unavailable[layer] = dump.UnavailableReason(err)
			}
		})
	}
	all.Go(func() { sources.Dump = s.collector.CollectWithoutBundles(ctx, cluster) })
	all.Go(func() { sources.Components = s.Layers.Check(ctx) })
	read(adminv1.LayerClusterService, func() error {
		changes, err := s.Fleet.ListClusterChanges(ctx, &clusterservicev1.ListClusterChangesRequest{ClusterUid: cluster.UID})
		if err != nil {
			return apierror.FromGRPC(err)
		}
		sources.Changes = changes.GetChanges()
		actions, err := s.Fleet.ListClusterActions(ctx, &clusterservicev1.ListClusterActionsRequest{ClusterUid: cluster.UID})
		for _, a := range actions.GetActions() {
			sources.Effects[a.GetUid()] = a.GetEffect()
		}
		return apierror.FromGRPC(err)
	})
	read(adminv1.LayerAdmin, func() error {
		records, _, err := s.Database.AdminRecords(ctx, database.AdminFilter{
			Kinds: []database.Kind{database.AdminOperationKind}, Target: cluster.UID}, "", maxTimelineRecords)
		for _, r := range records {
			sources.Actions = append(sources.Actions, operationResponse(&r.Operation.Value))
		}
		return err
	})
	read(adminv1.LayerAudit, func() error {
		lines, _, err := s.AuditHistory.Page(ctx, cluster.UID, "", maxTimelineRecords)
		if err != nil {
			return auditFailure(err)
		}
		for _, line := range lines {
			sources.Access = append(sources.Access, accessRecord(cluster.ResourceID, line))
		}
		return nil
	})
	if s.Alerts != nil {
		read(adminv1.LayerAlerts, func() (err error) {
			sources.Alerts, err = s.Alerts.Of(ctx, cluster, from, to)
			return err
		})
	}
	all.Wait()
	return sources
}
