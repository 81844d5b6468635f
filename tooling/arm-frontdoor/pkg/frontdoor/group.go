package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
)

// groupName is ARM's rule: up to 90 characters, not ending with a period.
var groupName = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)

// deletionPoll is how often a resource group that is being deleted looks whether its resources are gone. ARM polls its
// providers, too.
const deletionPoll = 500 * time.Millisecond

func listGroups(s directory.Subscription) *answer {
	values := []any{}
	for _, g := range s.SortedGroups() {
		values = append(values, groupBody(s, g))
	}
	return give(http.StatusOK, map[string]any{"value": values})
}

// group answers for one resource group.
func (d *Door) group(r *request, s directory.Subscription) *answer {
	g, exists := s.Group(r.path.group)
	if r.Method == http.MethodPut {
		return d.putGroup(r, s)
	}
	if !exists {
		if r.Method == http.MethodHead {
			return give(http.StatusNotFound, nil)
		}
		return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
	}
	switch r.Method {
	case http.MethodGet:
		return give(http.StatusOK, groupBody(s, g))
	case http.MethodHead:
		return give(http.StatusNoContent, nil)
	case http.MethodPatch:
		return d.patchGroup(r, s)
	case http.MethodDelete:
		return d.beginDeleteGroup(s, g)
	}
	return notAllowed(http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete)
}

type groupRequest struct {
	Name      string            `json:"name"`
	Location  string            `json:"location"`
	ManagedBy string            `json:"managedBy"`
	Tags      map[string]string `json:"tags"`
}

func (d *Door) putGroup(r *request, s directory.Subscription) *answer {
	if !groupName.MatchString(r.path.group) {
		return refuse(http.StatusBadRequest, "InvalidResourceGroupName", "The resource group name '%s' is invalid.", r.path.group)
	}
	var body groupRequest
	if refused := read(r, &body); refused != nil {
		return refused
	}
	if body.Location == "" {
		return refuse(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	location := strings.ToLower(strings.ReplaceAll(body.Location, " ", ""))
	status := http.StatusCreated
	after, err := d.options.Directory.Update(s.ID, func(s *directory.Subscription) error {
		next := directory.Group{Name: r.path.group, Location: location, ManagedBy: body.ManagedBy, Tags: body.Tags}
		if before, exists := s.Group(r.path.group); exists {
			if before.Deleting {
				return refuse(http.StatusConflict, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", before.Name)
			}
			if before.Location != location {
				return refuse(http.StatusConflict, "InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", location, before.Location)
			}
			status, next.Name = http.StatusOK, before.Name
		}
		s.Groups[strings.ToLower(next.Name)] = &next
		return nil
	})
	if err != nil {
		return d.fail(err)
	}
	g, _ := after.Group(r.path.group)
	return give(status, groupBody(after, g))
}

func (d *Door) patchGroup(r *request, s directory.Subscription) *answer {
	var body groupRequest
	if refused := read(r, &body); refused != nil {
		return refused
	}
	after, err := d.options.Directory.Update(s.ID, func(s *directory.Subscription) error {
		g, exists := s.Group(r.path.group)
		if !exists {
			return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
		}
		if body.Tags != nil {
			g.Tags = body.Tags
		}
		s.Groups[strings.ToLower(g.Name)] = &g
		return nil
	})
	if err != nil {
		return d.fail(err)
	}
	g, _ := after.Group(r.path.group)
	return give(http.StatusOK, groupBody(after, g))
}

// beginDeleteGroup marks the group, so that the deletion goes on over a crash, and answers as ARM does.
func (d *Door) beginDeleteGroup(s directory.Subscription, g directory.Group) *answer {
	if !g.Deleting {
		if _, err := d.options.Directory.Update(s.ID, func(s *directory.Subscription) error {
			if stored := s.Groups[strings.ToLower(g.Name)]; stored != nil {
				stored.Deleting = true
			}
			return nil
		}); err != nil {
			return d.fail(err)
		}
		d.deleteGroup(s.ID, g.Name)
	}
	return d.stillDeleting(s, g.Name)
}

func (d *Door) stillDeleting(s directory.Subscription, group string) *answer {
	accepted := give(http.StatusAccepted, nil)
	accepted.header = map[string]string{
		"Location":    fmt.Sprintf("%s/subscriptions/%s/operationresults/%s?api-version=2021-04-01", d.options.PublicURL, s.ID, escape(group)),
		"Retry-After": "1",
	}
	return accepted
}

// groupOperation answers the poll of a resource group's deletion; its id is the group's name.
func (d *Door) groupOperation(_ *request, s directory.Subscription, group string) *answer {
	if g, exists := s.Group(group); exists && g.Deleting {
		return d.stillDeleting(s, g.Name)
	}
	return give(http.StatusOK, nil)
}

// deleteGroup deletes what is in a marked group, and then the group, in the background.
func (d *Door) deleteGroup(subscription, group string) {
	d.work.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		d.work.Go(func() {
			select {
			case <-d.closing:
				cancel()
			case <-ctx.Done():
			}
		})
		for {
			done, err := d.emptyGroup(ctx, subscription, group)
			if err != nil && ctx.Err() == nil {
				d.options.Log.Warn("deleting a resource group", "subscription", subscription, "group", group, "error", err)
			}
			if done {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(deletionPoll):
			}
		}
	})
}

// emptyGroup asks for the deletion of every cluster in the group that is not being deleted yet; done when the group is gone.
func (d *Door) emptyGroup(ctx context.Context, subscription, group string) (done bool, err error) {
	s, ok := d.options.Directory.Subscription(subscription)
	if !ok {
		return true, nil
	}
	as := &request{correlation: newUUID()}
	as.caller.TenantID, as.caller.Name = s.TenantID, "Azure Resource Manager"
	// In a subscription that is Deleted the provider answers nothing more, and deletes everything by itself.
	if s.Provider == directory.Registered && s.State != "Deleted" {
		clusters, err := d.list(ctx, as, "/subscriptions/"+s.ID+"/resourceGroups/"+escape(group)+"/providers/"+Provider+"/hcpOpenShiftClusters")
		if err != nil {
			return false, err
		}
		for _, cluster := range clusters {
			if cluster.Properties.ProvisioningState == "Deleting" {
				continue
			}
			_, _, err := d.ask(ctx, as, http.MethodDelete, cluster.ID+"?api-version="+d.options.APIVersions[0], nil)
			var refused *answer
			if err != nil && !(errors.As(err, &refused) && refused.status == http.StatusConflict) {
				return false, err
			}
		}
		if len(clusters) > 0 {
			return false, nil
		}
	}
	_, err = d.options.Directory.Update(subscription, func(s *directory.Subscription) error {
		delete(s.Groups, strings.ToLower(group))
		return nil
	})
	return err == nil, err
}
