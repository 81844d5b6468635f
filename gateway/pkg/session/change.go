package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// removalTime is how long before its credential expires a session ends that has given access. The gateway removes the access with the credential.
	removalTime = 30 * time.Second
	// stopTime limits the removals while the process stops.
	stopTime = 5 * time.Second
	// orphanTime is how long after the credential of a session has expired its objects without an outcome get one: the process that had them has ended.
	orphanTime = time.Minute
	// firstRemovalPause and lastRemovalPause are the pauses between two attempts.
	firstRemovalPause = 250 * time.Millisecond
	lastRemovalPause  = 15 * time.Second
	// maxAnswer is the maximum size of the response to a deletion that is read, in bytes.
	maxAnswer = 3 << 20
	// maxReason limits the reason of an engineer in the document, in bytes.
	maxReason = 256
)

// Change is a request of a session that creates or changes an object that gives access. Only the process that has forwarded it removes the object: the document
// of the session authorizes nothing.
type Change struct {
	object database.AccessObject
	// path is the path of the object, or of its collection if the request did not name the object.
	path       string
	collection bool
	keep       string
	release    func()

	// sent is set when the request may have an effect. status is that of the response, or 0; uid is that of the object in it.
	sent   bool
	status int
	uid    string
}

// changes are the changes of a session on this replica.
type changes struct {
	mu         sync.Mutex
	closed     bool
	inProgress sync.WaitGroup
	all        []*Change
}

// add adds a change in progress, unless the session has ended.
func (c *changes) add(change *Change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.inProgress.Add(1)
	change.release = c.inProgress.Done
	c.all = append(c.all, change)
	return true
}

func (c *changes) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

// close refuses further changes. The caller must wait for inProgress before it reads those that it returns.
func (c *changes) close() []*Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.all
}

// Note notes in the document that a request of a session gives access, before the request is forwarded. The caller must call Done, also if it does not call Sent.
// path is that of the request. keep is the reason why the engineer wants to keep the object; empty means that it is removed with the session.
func (r *Registry) Note(ctx context.Context, s *Session, object database.AccessObject, path, keep string) (*Change, error) {
	object.Time = r.options.Clock.Now().UTC()
	change := &Change{object: object, path: path, collection: object.Verb == "create", keep: keep}
	if !s.changes.add(change) {
		return nil, cmp.Or(context.Cause(s.ctx), error(apierror.New(apierror.PermissionDenied, "The session has ended.")))
	}
	key, err := r.judgeChange(s)
	if err == nil {
		var found *database.AccessSessionDocument
		found, err = r.options.Database.ChangeAccessSession(ctx, key, func(document *database.AccessSessionDocument) (bool, error) {
			if len(document.Objects) >= database.MaxAccessObjects {
				return false, apierror.New(apierror.Throttled, "The session has changed %d objects that give access, which is the maximum. Request another one.", database.MaxAccessObjects)
			}
			document.SetObject(object)
			return true, nil
		})
		if err == nil && found == nil {
			err = apierror.New(apierror.PermissionDenied, "The session does not exist any more.")
		}
		if err != nil && !slices.Contains([]apierror.Kind{apierror.Throttled, apierror.PermissionDenied}, apierror.KindOf(err)) {
			err = apierror.New(apierror.Unavailable, "The session gateway cannot note in Cosmos DB that the request gives access.").WithRetryAfter(retryPause).WithCause(err)
		}
	}
	if err != nil {
		change.Done()
		return nil, err
	}
	return change, nil
}

// judgeChange ends a session whose credential expires too early to remove what it changes. It returns the key of its document.
func (r *Registry) judgeChange(s *Session) (database.Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[s.ID]
	if e != nil && e.session == s {
		r.judge(s.ID, e)
	}
	if err := context.Cause(s.ctx); err != nil {
		return database.Key{}, err
	}
	return e.key, nil
}

// Sent notes that the API server may get the request.
func (c *Change) Sent() { c.sent = true }

// Answered notes the response of the API server, with the name and the UID of the object that it has. An aggregated API server may respond with anything.
func (c *Change) Answered(status int, name, uid string) {
	c.status = status
	if name == "" || len(path.IsValidPathSegmentName(name)) > 0 {
		return
	}
	c.uid, c.object.Name = uid, name
	if c.collection {
		c.path += "/" + name
	}
}

// Done ends the request.
func (c *Change) Done() { c.release() }

// effect is what a change has done.
type effect int

const (
	nothing effect = iota
	created
	changed
	unknown
)

// effect returns what the change has done. A response with a server error does not prove that it has done nothing.
func (c *Change) effect() effect {
	switch {
	case !c.sent, c.status >= http.StatusBadRequest && c.status < http.StatusInternalServerError:
		return nothing
	case c.status == http.StatusCreated && c.uid != "":
		return created
	case c.status == http.StatusOK && c.uid != "":
		return changed
	}
	return unknown
}

// removeAccess removes what a session has created that gives access, and stores the outcomes. It is called with the lock, once for each session.
func (r *Registry) removeAccess(id string, e *entry, backend *Backend) {
	all := e.session.changes.close()
	if len(all) == 0 {
		return
	}
	s, key := e.session, e.key
	r.removals.Go(func() {
		s.changes.inProgress.Wait()
		ctx, cancel := context.WithCancel(r.removing)
		defer cancel()
		if expiration := s.expiration.Load(); expiration != nil {
			timer := r.options.Clock.AfterFunc(expiration.Sub(r.options.Clock.Now()), cancel)
			defer timer.Stop()
		}
		removed := map[string]bool{} // by UID
		for _, c := range all {
			if c.effect() != created || c.keep != "" {
				continue
			}
			if c.object.Reason = r.remove(ctx, s, backend, c); c.object.Reason == "" {
				c.object.Outcome, removed[c.uid] = database.AccessRemoved, true
			}
		}
		for _, c := range all {
			switch what := c.effect(); {
			case what == nothing || c.object.Outcome == database.AccessRemoved:
			case what == changed && removed[c.uid]:
				c.object.Outcome = database.AccessRemoved
			case what == unknown:
				c.left("it may exist: the gateway has no complete response of the API server")
			case what == changed:
				c.left("it existed before the request, or another request of the session created it and it was kept")
			case c.keep != "":
				c.left("the engineer keeps it: " + bounded(c.keep))
			default:
				c.left(c.object.Reason)
			}
		}
		if backend != nil {
			backend.Transport.CloseIdleConnections()
		}
		r.mu.Lock()
		stopped := r.stopped
		r.mu.Unlock()
		for _, c := range all {
			if stopped && c.object.Outcome == database.AccessLeft {
				c.object.Outcome = "" // Prometheus would not get the metric: another process reports it
			}
		}
		r.storeOutcomes(id, key, s, all)
	})
}

func (c *Change) left(reason string) {
	c.object.Outcome, c.object.Reason = database.AccessLeft, reason
}

func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// remove deletes an object. It repeats that after temporary failures until ctx ends. It returns the reason why the object may exist; empty if it does not.
func (r *Registry) remove(ctx context.Context, s *Session, backend *Backend, c *Change) (reason string) {
	if backend == nil {
		return "the gateway had no credential any more"
	}
	pauses := backoff.New(firstRemovalPause, lastRemovalPause)
	for {
		reason, temporary := r.tryRemove(ctx, s, backend, c)
		if !temporary || pauses.Wait(ctx) != nil {
			return reason
		}
	}
}

// tryRemove is an attempt of remove. The audit has it as a request of the engineer, whose credential it has.
func (r *Registry) tryRemove(ctx context.Context, s *Session, backend *Backend, c *Change) (reason string, temporary bool) {
	record := s.record("kubernetes.delete", c.object)
	record.Request = uuid.NewString()
	begun, err := r.options.Audit.Begin(ctx, record)
	if err != nil {
		return "its removal cannot be audited", true
	}
	status := 0
	defer func() {
		switch record.Outcome = audit.Failed; {
		case reason == "":
			record.Outcome = audit.Succeeded
		case status != 0:
			record.Code = fmt.Sprint(status)
		default:
			record.Code = apierror.Unavailable.ARMCode()
		}
		if err := begun.End(context.WithoutCancel(ctx), record); err != nil {
			r.options.Log.Error("the outcome of a request is not in the audit", logkey.RequestID, record.Request, logkey.Error, err)
		}
	}()
	if err := begun.Durable(ctx); err != nil {
		return "its removal cannot be audited", true
	}
	status, left, err := deleteObject(ctx, backend, c, record.Request)
	switch {
	case err != nil:
		r.options.Log.Warn("removing an object that gives access failed; retrying", logkey.OperationID, s.ID, logkey.Kind, c.object.Kind, logkey.Error, err)
		return "the API server does not respond", true
	case status == http.StatusNotFound:
		return "", false
	case status == http.StatusConflict:
		return "another object has its name now", false
	case status == http.StatusOK || status == http.StatusAccepted:
		return left, false
	}
	temporary = status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	return fmt.Sprintf("the API server has answered its deletion with the status %d", status), temporary
}

// deleteObject deletes an object unless another one has its name. left is the reason why it exists although the API server has accepted the deletion.
func deleteObject(ctx context.Context, backend *Backend, c *Change, auditID string) (status int, left string, err error) {
	uid, background := types.UID(c.uid), metav1.DeletePropagationBackground
	content, err := json.Marshal(metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if err != nil {
		return 0, "", err
	}
	target := url.URL{Scheme: "https", Host: backend.URL.Host, Path: c.path}
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, target.String(), bytes.NewReader(content))
	if err != nil {
		return 0, "", err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "Audit-Id": {auditID}, "User-Agent": {writer}}
	if backend.Token != "" {
		request.Header.Set("Authorization", "Bearer "+backend.Token)
	}
	response, err := backend.Transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, "", err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &object); err != nil {
		return response.StatusCode, "the gateway cannot read the response to its deletion", nil
	}
	if object.UID == uid && len(object.Finalizers) > 0 {
		return response.StatusCode, "it is being deleted, and exists until its finalizers are removed", nil
	}
	return response.StatusCode, "", nil
}

// storeOutcomes stores the outcomes of changes in the audit, the metric and the document.
func (r *Registry) storeOutcomes(id string, key database.Key, s *Session, all []*Change) {
	for _, c := range all {
		if c.object.Outcome != "" {
			r.report(s, c.object)
		}
	}
	r.changeObjects(id, key, func(document *database.AccessSessionDocument) bool {
		for _, c := range all {
			if c.effect() == nothing {
				document.RemoveObject(c.object.Request)
			} else {
				document.SetObject(c.object)
			}
		}
		return true
	})
}

// changeObjects changes the objects in the document of a session, and repeats that after failures. It returns false if removing ends before: another process finds the
// session with objects that have no outcome.
func (r *Registry) changeObjects(id string, key database.Key, change func(*database.AccessSessionDocument) (changed bool)) bool {
	pauses := backoff.New(retryPause, lastRemovalPause)
	for {
		_, err := r.options.Database.ChangeAccessSession(r.removing, key, func(document *database.AccessSessionDocument) (bool, error) { return change(document), nil })
		if err == nil {
			return true
		}
		r.options.Log.Warn("storing the outcomes of the access of a session failed; retrying", logkey.OperationID, id, logkey.Error, err)
		if pauses.Wait(r.removing) != nil {
			return false
		}
	}
}

// report counts an outcome. Left is also in the audit and in the log.
func (r *Registry) report(s *Session, object database.AccessObject) {
	r.objects.WithLabelValues(strings.ToLower(string(object.Outcome))).Inc()
	if object.Outcome != database.AccessLeft {
		return
	}
	record := s.record("accessSessions.leave", object)
	record.Outcome, record.Code, record.Request = audit.Failed, apierror.FailedPrecondition.ARMCode(), object.Request
	if err := r.options.Audit.Append(r.removing, record); err != nil {
		r.options.Log.Error("an object that outlives its session is not in the audit", logkey.OperationID, s.ID, logkey.Error, err)
	}
	r.options.Log.Error("an object that gives access may outlive its session", logkey.OperationID, s.ID, logkey.ClusterUID, s.ClusterUID, logkey.Shard, s.Shard, logkey.ObjectID, s.Owner.ObjectID,
		logkey.Kind, object.Kind, logkey.Namespace, object.Namespace, logkey.Name, object.Name, logkey.RequestID, object.Request, logkey.Message, object.Reason)
}

// record returns an audit record of the session about an object.
func (s *Session) record(action string, object database.AccessObject) audit.Record {
	record := audit.Record{Person: audit.Person{Name: s.Owner.Name, ObjectID: s.Owner.ObjectID, TenantID: s.Owner.TenantID}, Action: action}
	s.Describe(&record)
	record.Object.Kind, record.Object.ID = object.Kind, "/"+object.Name
	if object.Namespace != "" {
		record.Object.ID = "/" + object.Namespace + record.Object.ID
	}
	return record
}

// Describe sets the fields of an audit record that all requests of the session have.
func (s *Session) Describe(record *audit.Record) {
	record.Person.Role, record.Person.Elevation = s.Owner.Role, s.Owner.ElevationID
	record.Reason, record.Ticket, record.Emergency, record.Operation, record.Level = s.Owner.Reason, s.Owner.Ticket, s.Emergency, s.ID, string(s.Mode.Level())
	record.Object.ResourceID, record.Object.Cluster, record.Object.Shard = s.ResourceID, s.ClusterUID, s.Shard
}

// awaitOutcomes reports the objects of an ended session that have no outcome when its credential has expired: the process that forwarded the requests has ended
// without removing them, and no other process knows what it has created. It is called with the lock.
func (r *Registry) awaitOutcomes(id string, key database.Key, document *database.AccessSessionDocument) {
	if !document.Unresolved || r.orphans[id] != nil || r.stopped {
		return
	}
	s, at := newSession(document, 0), r.options.Clock.Now()
	if document.ExpirationTime != nil && document.ExpirationTime.After(at) {
		at = *document.ExpirationTime
	}
	r.orphans[id] = r.options.Clock.AfterFunc(at.Add(orphanTime).Sub(r.options.Clock.Now()), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.orphans, id)
		if !r.stopped {
			r.removals.Go(func() { r.leaveOrphans(id, key, s) })
		}
	})
}

// leaveOrphans gives the objects without an outcome the outcome Left. The replica that writes it reports it.
func (r *Registry) leaveOrphans(id string, key database.Key, s *Session) {
	var left []database.AccessObject
	stored := r.changeObjects(id, key, func(document *database.AccessSessionDocument) bool {
		left = nil
		for _, object := range slices.Clone(document.Objects) {
			if object.Outcome == "" {
				object.Outcome = database.AccessLeft
				object.Reason = cmp.Or(object.Reason, "it may exist: the process of the gateway that forwarded the request ended before it removed the object")
				document.SetObject(object)
				left = append(left, object)
			}
		}
		return len(left) > 0
	})
	if !stored {
		return
	}
	for _, object := range left {
		r.report(s, object)
	}
}
