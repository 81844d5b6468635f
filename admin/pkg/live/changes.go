package live

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// maxStaleness is the age of the last read of a source after which it is not fresh.
	maxStaleness = 15 * time.Second
	// feedOverlap is how long before the start changes are read from. The change feed has a resolution of a second.
	feedOverlap = 5 * time.Second
	// feedBusy is the pause after a read of a change feed with changes.
	feedBusy = 250 * time.Millisecond
	// clusterPause is the shortest time between two events about a cluster, which changes often while it is installed, and listPause that between
	// two events about a list.
	clusterPause = time.Second
	listPause    = time.Second
	// regionPause is the shortest time between two events about the region, which changes with each of its clusters.
	regionPause = 5 * time.Second
)

// Options are the options of Changes.
type Options struct {
	Database *database.DB
	Fleet    clusterservicev1.ClusterServiceClient
	// Feed configures how often the change feeds are read.
	Feed database.FeedOptions
	// Now is the clock.
	Now     func() time.Time
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Changes follows what the pages of the portal show, and publishes changes to its Hub. Each source is read once per process: the change feeds of
// the containers Resources, Sessions and AccessSessions and the watch of Cluster Service by Run, and the change feed of the container Admin by its owner.
type Changes struct {
	Hub *Hub

	options        Options
	records        *feed
	resources      *feed
	accessSessions *feed
	fleet          *clusterservice.Follower
}

// NewChanges returns Changes. It registers the metrics of the Hub.
func NewChanges(options Options) *Changes {
	if options.Feed.BusyInterval == 0 {
		options.Feed.BusyInterval = feedBusy
	}
	options.Feed.Log = options.Log
	c := &Changes{Hub: NewHub(options.Metrics), options: options, records: &feed{now: options.Now}, resources: &feed{now: options.Now}, accessSessions: &feed{now: options.Now}}
	c.fleet = clusterservice.NewChangeFollower(options.Fleet, fleetHandler{c.Hub}, options.Now, options.Log)
	return c
}

// Run follows the sources until ctx ends.
func (c *Changes) Run(ctx context.Context) {
	since := time.Now().Add(-feedOverlap)
	resources, accessSessions := c.options.Feed, c.options.Feed
	resources.Read, accessSessions.Read = c.resources.noteRead, c.accessSessions.noteRead
	var sources sync.WaitGroup
	// The feeds return when ctx ends.
	sources.Go(func() { _ = c.options.Database.Tail(ctx, since, resources, c.takeResources) })
	sources.Go(func() { _ = c.options.Database.TailSessions(ctx, since, c.options.Feed, c.takeSessions) })
	sources.Go(func() { _ = c.options.Database.TailAccessSessions(ctx, since, accessSessions, c.takeAccessSessions) })
	sources.Go(func() { c.fleet.Run(ctx) })
	sources.Wait()
}

// Operation is the page of an admin operation.
func (c *Changes) Operation(id string) Page {
	return Page{Topics: []Topic{operationTopic(id)}, Sources: []Source{c.records}}
}

// Operations is the list of admin operations.
func (c *Changes) Operations() Page {
	return Page{Topics: []Topic{operationsTopic}, Sources: []Source{c.records}, Pause: listPause}
}

// Elevation is the page of an elevation.
func (c *Changes) Elevation(id string) Page {
	return Page{Topics: []Topic{elevationTopic(id)}, Sources: []Source{c.records}}
}

// Elevations is the list of elevations.
func (c *Changes) Elevations() Page {
	return Page{Topics: []Topic{elevationsTopic}, Sources: []Source{c.records}, Pause: listPause}
}

// AccessSession is the page of an access session.
func (c *Changes) AccessSession(id string) Page {
	return Page{Topics: []Topic{accessSessionTopic(id)}, Sources: []Source{c.accessSessions}, Pause: listPause}
}

// AccessSessions is the list of access sessions.
func (c *Changes) AccessSessions() Page {
	return Page{Topics: []Topic{accessSessionsTopic}, Sources: []Source{c.accessSessions}, Pause: listPause}
}

// Cluster is the page of a cluster.
func (c *Changes) Cluster(uid, resourceID string) Page {
	return Page{Topics: []Topic{clusterTopic(uid), resourceTopic(resourceID), componentsTopic}, Sources: []Source{c.records, c.resources, fleetSource{c.fleet, c.options.Now}}, Pause: clusterPause}
}

// Region is the page of the region.
func (c *Changes) Region() Page {
	return Page{Topics: []Topic{regionTopic}, Sources: []Source{c.records, fleetSource{c.fleet, c.options.Now}}, Pause: regionPause}
}

const (
	// regionTopic is the region with all of its clusters, actions, elevations and components.
	regionTopic Topic = "region"
	// operationsTopic is the set of all admin operations, elevationsTopic that of all elevations, and accessSessionsTopic that of all access sessions.
	operationsTopic     Topic = "operations"
	elevationsTopic     Topic = "elevations"
	accessSessionsTopic Topic = "access-sessions"
	// componentsTopic is the set of components that are away.
	componentsTopic Topic = "components"
)

func operationTopic(id string) Topic { return Topic("operation/" + strings.ToLower(id)) }

func elevationTopic(id string) Topic { return Topic("elevation/" + strings.ToLower(id)) }

func accessSessionTopic(id string) Topic { return Topic("access-session/" + strings.ToLower(id)) }

func clusterTopic(uid string) Topic { return Topic("cluster/" + strings.ToLower(uid)) }

func resourceTopic(resourceID string) Topic { return Topic(strings.ToLower(resourceID)) }

// NoteAdminRead notes that the change feed of the container Admin was read.
func (c *Changes) NoteAdminRead() { c.records.noteRead() }

// TakeAdmin publishes changes of the container Admin. It is a database.Handler.
func (c *Changes) TakeAdmin(ctx context.Context, changes []database.Change) error {
	for _, change := range changes {
		switch change.Kind {
		case database.ComponentAbsencesKind:
			c.Hub.Publish(componentsTopic, regionTopic)
		case database.ElevationKind:
			elevation, err := database.DecodeChange(c.options.Database.Elevations(), change)
			if err != nil {
				c.options.Log.ErrorContext(ctx, "an elevation cannot be decoded; ignoring", logkey.Error, err)
				continue
			}
			c.Hub.Publish(elevationTopic(elevation.Value.ElevationID), elevationsTopic, regionTopic)
		case database.AdminOperationKind:
			operation, err := database.DecodeChange(c.options.Database.AdminOperations(), change)
			if err != nil {
				c.options.Log.ErrorContext(ctx, "an admin operation cannot be decoded; ignoring", logkey.Error, err)
				continue
			}
			c.Hub.Publish(operationTopic(operation.Value.OperationID), operationsTopic, clusterTopic(operation.Value.Target.ClusterUID), regionTopic)
		}
	}
	return nil
}

// takeResources publishes changes of clusters and their children. Each change of an operation is written together with its resource.
func (c *Changes) takeResources(_ context.Context, changes []database.Change) error {
	for _, change := range changes {
		if cluster, found := clusterOf(change.Key.ResourceID); found {
			c.Hub.Publish(resourceTopic(cluster))
		}
	}
	return nil
}

// clusterOf returns the ARM resource ID of the cluster to which a resource ID belongs.
func clusterOf(resourceID string) (cluster string, found bool) {
	// "", subscriptions, ID, resourceGroups, name, providers, namespace, type, name
	const length, kind = 9, 7
	parts := strings.Split(resourceID, "/")
	if len(parts) < length || !strings.EqualFold(parts[kind], "hcpOpenShiftClusters") {
		return "", false
	}
	return strings.Join(parts[:length], "/"), true
}

// takeAccessSessions publishes changes of access sessions and of their recordings.
func (c *Changes) takeAccessSessions(ctx context.Context, changes []database.Change) error {
	for _, change := range changes {
		switch change.Kind {
		case database.AccessSessionKind:
			session, err := database.DecodeChange(c.options.Database.AccessSessions(), change)
			if err != nil {
				c.options.Log.ErrorContext(ctx, "an access session cannot be decoded; ignoring", logkey.Error, err)
				continue
			}
			c.Hub.Publish(accessSessionTopic(session.Value.SessionID), accessSessionsTopic)
		case database.AccessRecordingKind:
			recording, err := database.DecodeChange(c.options.Database.AccessRecordings(), change)
			if err != nil {
				c.options.Log.ErrorContext(ctx, "a recording cannot be decoded; ignoring", logkey.Error, err)
				continue
			}
			c.Hub.Publish(accessSessionTopic(recording.Value.SessionID))
		}
	}
	return nil
}

// takeSessions ends the streams of sessions that ended on any replica.
func (c *Changes) takeSessions(_ context.Context, changes []database.Change) error {
	for _, change := range changes {
		if change.Removed {
			c.Hub.EndSession(change.Key.ResourceID[strings.LastIndexByte(change.Key.ResourceID, '/')+1:])
		}
	}
	return nil
}

// fleetHandler publishes changes of Cluster Service.
type fleetHandler struct{ hub *Hub }

// Changed implements clusterservice.FollowHandler.
func (f fleetHandler) Changed(message *clusterservicev1.WatchResponse) {
	var uid string
	switch event := message.GetEvent().(type) {
	case *clusterservicev1.WatchResponse_Cluster:
		uid = event.Cluster.GetUid()
	case *clusterservicev1.WatchResponse_NodePool:
		uid = event.NodePool.GetClusterUid()
	case *clusterservicev1.WatchResponse_ExternalAuth:
		uid = event.ExternalAuth.GetClusterUid()
	case *clusterservicev1.WatchResponse_BreakGlassCredential:
		uid = event.BreakGlassCredential.GetClusterUid()
	case *clusterservicev1.WatchResponse_BreakGlassRevocation:
		uid = event.BreakGlassRevocation.GetClusterUid()
	case *clusterservicev1.WatchResponse_Upgrade:
		uid = event.Upgrade.GetClusterUid()
	}
	f.hub.Publish(clusterTopic(uid), regionTopic)
}

// Restarted implements clusterservice.FollowHandler: changes may be missing.
func (f fleetHandler) Restarted() { f.hub.PublishAll() }

// CaughtUp implements clusterservice.FollowHandler.
func (f fleetHandler) CaughtUp() {}

// fleetSource is the watch of Cluster Service as a Source.
type fleetSource struct {
	follower *clusterservice.Follower
	now      func() time.Time
}

// Fresh implements Source.
func (f fleetSource) Fresh() bool {
	since := f.follower.Stale()
	return since.IsZero() || f.now().Sub(since) <= maxStaleness
}

// feed is a change feed as a Source.
type feed struct {
	now func() time.Time

	mu   sync.Mutex
	read time.Time
}

func (f *feed) noteRead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = f.now()
}

// Fresh implements Source.
func (f *feed) Fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now().Sub(f.read) <= maxStaleness
}
