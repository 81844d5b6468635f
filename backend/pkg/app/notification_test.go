package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// listener receives notifications. It rejects the first refusing of them. point, if not nil, is called before and after
// it receives one.
type listener struct {
	url   string
	point func(name string) error

	mu       sync.Mutex
	refusing int
	attempts int
	received []asyncoperation.Status
}

func newListener(t *testing.T) *listener {
	t.Helper()
	l := &listener{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.point != nil {
			if l.point("before notification") != nil {
				panic(http.ErrAbortHandler)
			}
			defer func() {
				if l.point("after notification") != nil {
					panic(http.ErrAbortHandler)
				}
			}()
		}
		body, err := io.ReadAll(r.Body)
		var status asyncoperation.Status
		l.mu.Lock()
		defer l.mu.Unlock()
		l.attempts++
		switch {
		case l.refusing > 0:
			l.refusing--
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &status) != nil:
			t.Errorf("a notification: %s %v %q", r.Method, err, body)
		default:
			l.received = append(l.received, status)
		}
	}))
	t.Cleanup(server.Close)
	l.url = server.URL + "/operations?token=secret"
	return l
}

func (l *listener) counts() (attempts, heard int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts, len(l.received)
}

// createWatched is createCluster by a caller that requests a notification.
func (r *region) createWatched(key database.Key, uri string) (operation database.Key) {
	r.t.Helper()
	uid := "uid-" + key.ResourceID[len(key.ResourceID)-1:]
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	op.NotificationURI = uri
	document := newCluster(key, uid)
	document.ProvisioningState, document.ActiveOperationID = hub.Accepted, op.OperationID
	r.commit(key.SubscriptionID, func(batch *database.Batch) {
		database.Create(batch, r.db.Clusters(), key, document)
		database.Create(batch, r.db.Operations(), opKey, op)
	})
	return opKey
}

// notified waits for the end of the notification of an operation.
func (r *region) notified(operation database.Key) database.NotificationState {
	r.t.Helper()
	var got database.NotificationState
	r.eventually("the notification", func() string {
		item, err := r.db.Operations().Get(r.t.Context(), operation)
		if err != nil || item.Value.Notification == nil || item.Value.Notification.EndTime == nil {
			return fmt.Sprint(item, err)
		}
		got = *item.Value.Notification
		return ""
	})
	return got
}

func TestNotification(t *testing.T) {
	t.Parallel()
	r, l := newRegion(t), newListener(t)
	l.refusing = 3
	r.start("backend-0")
	operation := r.createWatched(clusterKey(subscription, "a"), l.url)
	ended := r.ends(operation, hub.Succeeded)
	state := r.notified(operation)
	if attempts, heard := l.counts(); !state.Delivered || state.Attempts != 4 || attempts != 4 || heard != 1 {
		t.Errorf("%+v, with %d attempts and %d received", state, attempts, heard)
	}
	if got := l.received[0]; got.Status != "Succeeded" || got.Name != ended.OperationID || got.EndTime == nil {
		t.Errorf("the notified status: %+v", got)
	}
}

// TestUndeliverableNotificationIsAbandoned: a notification that is never accepted ends, and one to a forbidden target
// is never sent.
func TestUndeliverableNotificationIsAbandoned(t *testing.T) {
	t.Parallel()
	r, l := newRegion(t), newListener(t)
	l.refusing = 1000
	r.start("backend-0")
	refused := r.createWatched(clusterKey(subscription, "a"), l.url)
	foreign := r.createWatched(clusterKey(subscription, "b"), "http://169.254.169.254/metadata")
	if state := r.notified(refused); state.Delivered || state.Attempts != 14 {
		t.Errorf("a notification that is never accepted: %+v", state)
	}
	if state := r.notified(foreign); state.Delivered {
		t.Errorf("a notification to a forbidden target: %+v", state)
	}
	if attempts, _ := l.counts(); attempts != 14 {
		t.Errorf("the notification was sent %d times", attempts)
	}
}

// TestOperationsExpire: an operation expires seven days after its end, however late it was last written.
func TestOperationsExpire(t *testing.T) {
	t.Parallel()
	r, l := newRegion(t), newListener(t)
	key, operation := newOperation(database.CreateRequest, clusterKey(subscription, "a"), "uid", 1)
	const left = 10 * time.Minute
	operation.End(hub.Succeeded, nil, time.Now().Add(-database.OperationTTL+left))
	operation.NotificationURI = l.url
	r.commit(subscription, func(batch *database.Batch) { database.Create(batch, r.db.Operations(), key, operation) })
	r.start("backend-0")
	r.eventually("the notification", func() string {
		if asked, heard := l.counts(); heard != 1 {
			return fmt.Sprintf("was sent %d times and received %d times", asked, heard)
		}
		return ""
	})
	r.notified(key)
	r.cosmos.Advance(left)
	r.eventually("the operation's expiry", func() string {
		item, err := r.db.Operations().Find(t.Context(), key)
		if err != nil || item != nil {
			return fmt.Sprint(item, err)
		}
		return ""
	})
}
