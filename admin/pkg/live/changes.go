package live

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// maxStaleness is the age of the last read of a source after which it is not fresh.
const maxStaleness = 15 * time.Second

// Changes follows what the pages of the portal show, and publishes changes to its Hub.
type Changes struct {
	Hub *Hub

	records *feed
}

// NewChanges returns Changes. now is the clock. It registers the metrics of the Hub.
func NewChanges(now func() time.Time, metrics prometheus.Registerer) *Changes {
	return &Changes{Hub: NewHub(metrics), records: &feed{now: now}}
}

// Operation is the page of an admin operation.
func (c *Changes) Operation(id string) Page {
	return Page{Topics: []Topic{operationTopic(id)}, Sources: []Source{c.records}}
}

func operationTopic(id string) Topic { return Topic("operation/" + strings.ToLower(id)) }

// NoteAdminRead notes that the change feed of admin's container was read.
func (c *Changes) NoteAdminRead() { c.records.noteRead() }

// TakeAdmin publishes changes of admin's container. It is a database.Handler.
func (c *Changes) TakeAdmin(_ context.Context, changes []database.Change) error {
	for _, change := range changes {
		if change.Kind == database.AdminOperationKind {
			c.Hub.Publish(operationTopic(lastSegment(change.Key.ResourceID)))
		}
	}
	return nil
}

// lastSegment returns the text after the last slash of a path.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

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
