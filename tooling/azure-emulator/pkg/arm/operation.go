package arm

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// operationLife is how long the outcome of an operation can be asked for.
const operationLife = 24 * time.Hour

// operation is one that is long.
type operation struct {
	ID         string    `json:"id"`
	ResourceID string    `json:"resourceId"`
	Deletion   bool      `json:"deletion"`
	Start      time.Time `json:"start"`
	Due        time.Time `json:"due"`
	Done       bool      `json:"done"`
}

// begin starts an operation on a resource and returns the headers that say where to ask for it.
func (c *call) begin(r *Resource, deletion bool) (http.Header, error) {
	now := c.Now()
	o := &operation{ID: uuid.NewString(), ResourceID: r.ID, Deletion: deletion, Start: now, Due: now.Add(c.OperationDelay)}
	r.Operation = o.ID
	return c.pollHeaders(r, o.ID, deletion), c.tx.Put(operations, o.ID, o)
}

// pollHeaders are those by which each provider says where to ask.
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
		in := base + "/resourceGroups/" + c.path.group + "/providers/Microsoft.Network/"
		header.Set("Azure-AsyncOperation", in+"dnsOperationStatuses/"+id+version)
		header.Set("Location", in+"dnsOperationResults/"+id+version)
		return header
	}
	location := r.Location
	if location == "" {
		location = c.Location
	}
	in := base + "/providers/Microsoft.Network/locations/" + location
	header.Set("Azure-AsyncOperation", in+"/operations/"+id+version)
	if deletion {
		header.Set("Location", in+"/operationResults/"+id+version)
	}
	return header
}

// showOperation says how an operation stands.
func (c *call) showOperation() (*answer, error) {
	if c.method != http.MethodGet {
		return nil, notImplemented("Operations can only be asked for.")
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
		return &answer{status: http.StatusAccepted, header: header}, nil
	case c.path.result:
		return &answer{status: http.StatusOK}, nil
	}
	status := "InProgress"
	if o.Done {
		status = "Succeeded"
	}
	return &answer{status: http.StatusOK, header: header, body: map[string]any{"id": c.path.id, "name": o.ID, "status": status, "startTime": o.Start.UTC()}}, nil
}

// Run ends operations in their time until ctx is over.
func (s *Server) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.woken:
		case <-timer.C:
		}
		next, err := s.finish()
		if err != nil {
			slog.Error("ending operations failed", "error", err)
		}
		timer.Reset(next)
	}
}

func (s *Server) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// finish ends the operations whose time has come, forgets old ones, and says when to look again.
func (s *Server) finish() (time.Duration, error) {
	const idle = time.Minute
	if s.OperationDelay == 0 {
		return idle, nil
	}
	var pending []*operation
	next, now := idle, s.Now()
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[operation](tx, operations, "")
		for _, o := range all {
			switch {
			case !o.Done && o.Due.After(now):
				next = min(next, o.Due.Sub(now))
			case !o.Done, now.Sub(o.Due) > operationLife:
				pending = append(pending, o)
			}
		}
		return err
	})
	if err != nil || len(pending) == 0 {
		return next, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	err = s.Store.Update(func(tx *store.Tx) error {
		for _, o := range pending {
			if err := s.end(tx, o, now); err != nil {
				return err
			}
		}
		return nil
	})
	return next, err
}

func (s *Server) end(tx *store.Tx, o *operation, now time.Time) error {
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
		if o.Deletion {
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
