package arm

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// operationRetention is the time for which the result of a completed operation is stored.
const operationRetention = 24 * time.Hour

// operation is an operation that takes OperationDelay.
type operation struct {
	ID         string    `json:"id"`
	ResourceID string    `json:"resourceId"`
	Delete     bool      `json:"deletion"`
	Start      time.Time `json:"start"`
	Due        time.Time `json:"due"`
	Done       bool      `json:"done"`
}

// startOperation starts an operation on a resource and returns the headers for its polls.
func (c *call) startOperation(r *Resource, deletion bool) (http.Header, error) {
	now := c.Now()
	o := &operation{ID: uuid.NewString(), ResourceID: r.ID, Delete: deletion, Start: now, Due: now.Add(c.OperationDelay)}
	r.Operation = o.ID
	return c.pollHeaders(r, o.ID, deletion), c.tx.Put(operations, o.ID, o)
}

// pollHeaders returns the headers with which the provider of a resource refers to an operation.
func (c *call) pollHeaders(r *Resource, id string, deletion bool) http.Header {
	header := http.Header{}
	SetRetryAfter(header, c.OperationDelay)
	base := "https://" + c.host + "/subscriptions/" + c.path.subscription
	version := "?api-version=" + c.query.Get("api-version")
	switch {
	case strings.EqualFold(r.Type, groupType):
		header.Set("Location", base+"/operationresults/"+id+version)
		return header
	case strings.EqualFold(r.Type, zoneType):
		prefix := base + "/resourceGroups/" + c.path.group + "/providers/Microsoft.Network/"
		header.Set("Azure-AsyncOperation", prefix+"dnsOperationStatuses/"+id+version)
		header.Set("Location", prefix+"dnsOperationResults/"+id+version)
		return header
	}
	location := r.Location
	if location == "" {
		location = c.Location
	}
	namespace, _, _ := strings.Cut(r.Type, "/")
	prefix := base + "/providers/" + namespace + "/locations/" + location
	header.Set("Azure-AsyncOperation", prefix+"/operations/"+id+version)
	if deletion {
		header.Set("Location", prefix+"/operationResults/"+id+version)
	}
	return header
}

// showOperation responds with the status or the result of an operation.
func (c *call) showOperation() (*response, error) {
	if c.method != http.MethodGet {
		return nil, notImplemented("Operations support only GET.")
	}
	var o operation
	found, err := c.tx.Get(operations, c.path.operation, &o)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &Error{Status: http.StatusNotFound, Code: "OperationNotFound", Message: fmt.Sprintf("The operation '%s' was not found.", c.path.operation)}
	}
	header := http.Header{}
	if !o.Done {
		SetRetryAfter(header, c.OperationDelay)
	}
	switch {
	case c.path.result && !o.Done:
		header.Set("Location", "https://"+c.host+c.path.id+"?api-version="+c.query.Get("api-version"))
		return &response{status: http.StatusAccepted, header: header}, nil
	case c.path.result:
		return &response{status: http.StatusOK}, nil
	}
	status := "InProgress"
	if o.Done {
		status = "Succeeded"
	}
	return &response{status: http.StatusOK, header: header, body: map[string]any{"id": c.path.id, "name": o.ID, "status": status, "startTime": o.Start.UTC()}}, nil
}

// Run completes operations when they are due, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wakeups:
		case <-timer.C:
		}
		next, err := s.completeDueOperations()
		if err != nil {
			s.Log.Error("completing operations failed", logkey.Error, err)
		}
		timer.Reset(next)
	}
}

// wakeRun notifies Run of a new operation.
func (s *Server) wakeRun() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// completeDueOperations completes the operations that are due, deletes old ones, and returns the time until the next is
// due.
func (s *Server) completeDueOperations() (time.Duration, error) {
	const idle = time.Minute
	if s.OperationDelay == 0 {
		return idle, nil
	}
	var due []*operation
	next, now := idle, s.Now()
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[operation](tx, operations, "")
		for _, o := range all {
			switch {
			case !o.Done && o.Due.After(now):
				next = min(next, o.Due.Sub(now))
			case !o.Done, now.Sub(o.Due) > operationRetention:
				due = append(due, o)
			}
		}
		return err
	})
	if err != nil || len(due) == 0 {
		return next, err
	}
	s.updates.Lock()
	defer s.updates.Unlock()
	err = s.Store.Update(func(tx *store.Tx) error {
		for _, o := range due {
			if err := s.completeOperation(tx, o, now); err != nil {
				return err
			}
		}
		return nil
	})
	return next, err
}

// completeOperation applies the result of an operation, or deletes an operation that was completed before.
func (s *Server) completeOperation(tx *store.Tx, o *operation, now time.Time) error {
	if o.Done {
		return tx.Delete(operations, o.ID)
	}
	c := &call{Server: s, tx: tx}
	r, err := c.find(o.ResourceID)
	if err != nil {
		return err
	}
	o.Done, o.Due = true, now
	if r != nil && r.Operation == o.ID {
		if o.Delete {
			err = c.removeTree(r.ID)
		} else {
			r.Operation, r.Properties["provisioningState"] = "", "Succeeded"
			err = c.save(r)
		}
		if err != nil {
			return err
		}
	}
	return tx.Put(operations, o.ID, o)
}
