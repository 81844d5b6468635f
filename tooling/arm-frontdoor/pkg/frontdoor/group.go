package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// groupNamePattern is ARM's rule for resource group names: up to 90 characters, without a period at the end.
var groupNamePattern = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)

// deletionPoll is the interval at which the deletion of a resource group lists the remaining resources. ARM polls resource
// providers as well.
const deletionPoll = 500 * time.Millisecond

// listGroups returns the list of a subscription's resource groups.
func listGroups(s Subscription) *response {
	values := []any{}
	for _, g := range s.SortedGroups() {
		values = append(values, groupBody(s, g))
	}
	return newResponse(http.StatusOK, map[string]any{"value": values})
}

// respondForGroup responds to a request for one resource group.
func (d *FrontDoor) respondForGroup(r *request, s Subscription) *response {
	g, exists := s.Group(r.path.group)
	if r.Method == http.MethodPut {
		return d.putGroup(r, s)
	}
	if !exists {
		if r.Method == http.MethodHead {
			return newResponse(http.StatusNotFound, nil)
		}
		return newError(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
	}
	switch r.Method {
	case http.MethodGet:
		return newResponse(http.StatusOK, groupBody(s, g))
	case http.MethodHead:
		return newResponse(http.StatusNoContent, nil)
	case http.MethodPatch:
		return d.patchGroup(r, s)
	case http.MethodDelete:
		return d.startGroupDeletion(s, g)
	}
	return methodNotAllowed(http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete)
}

// groupInput is the body of a request that changes a resource group.
type groupInput struct {
	Name      string            `json:"name"`
	Location  string            `json:"location"`
	ManagedBy string            `json:"managedBy"`
	Tags      map[string]string `json:"tags"`
}

// putGroup creates or replaces a resource group.
func (d *FrontDoor) putGroup(r *request, s Subscription) *response {
	if !groupNamePattern.MatchString(r.path.group) {
		return newError(http.StatusBadRequest, "InvalidResourceGroupName", "The resource group name '%s' is invalid.", r.path.group)
	}
	var body groupInput
	if failure := decodeBody(r, &body); failure != nil {
		return failure
	}
	if failure := checkTags(body.Tags); failure != nil {
		return failure
	}
	if body.Location == "" {
		return newError(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	location := strings.ToLower(strings.ReplaceAll(body.Location, " ", ""))
	status := http.StatusCreated
	after, err := d.options.Directory.Update(s.ID, func(s *Subscription) error {
		next := Group{Name: r.path.group, Location: location, ManagedBy: body.ManagedBy, Tags: body.Tags}
		if before, exists := s.Group(r.path.group); exists {
			if before.Deleting {
				return newError(http.StatusConflict, "ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", before.Name)
			}
			if before.Location != location {
				return newError(http.StatusConflict, "InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", location, before.Location)
			}
			status, next.Name = http.StatusOK, before.Name
		}
		s.Groups[asciifold.Lower(next.Name)] = &next
		return nil
	})
	if err != nil {
		return d.errorResponse(err)
	}
	g, _ := after.Group(r.path.group)
	return newResponse(status, groupBody(after, g))
}

// patchGroup updates the tags of a resource group.
func (d *FrontDoor) patchGroup(r *request, s Subscription) *response {
	var body groupInput
	if failure := decodeBody(r, &body); failure != nil {
		return failure
	}
	if failure := checkTags(body.Tags); failure != nil {
		return failure
	}
	after, err := d.options.Directory.Update(s.ID, func(s *Subscription) error {
		g, exists := s.Group(r.path.group)
		if !exists {
			return newError(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
		}
		if body.Tags != nil {
			g.Tags = body.Tags
		}
		s.Groups[asciifold.Lower(g.Name)] = &g
		return nil
	})
	if err != nil {
		return d.errorResponse(err)
	}
	g, _ := after.Group(r.path.group)
	return newResponse(http.StatusOK, groupBody(after, g))
}

// startGroupDeletion marks the group as deleting, so that a restarted process resumes the deletion, and starts the
// deletion.
func (d *FrontDoor) startGroupDeletion(s Subscription, g Group) *response {
	if !g.Deleting {
		if _, err := d.options.Directory.Update(s.ID, func(s *Subscription) error {
			if stored := s.Groups[asciifold.Lower(g.Name)]; stored != nil {
				stored.Deleting = true
			}
			return nil
		}); err != nil {
			return d.errorResponse(err)
		}
		d.runGroupDeletion(s.ID, g.Name)
	}
	return d.deletionAccepted(s, g.Name)
}

// deletionAccepted returns the response while a group is being deleted.
func (d *FrontDoor) deletionAccepted(s Subscription, group string) *response {
	accepted := newResponse(http.StatusAccepted, nil)
	accepted.header = map[string]string{
		"Location": fmt.Sprintf("%s/subscriptions/%s/operationresults/%s?api-version=2021-04-01", d.options.PublicURL, s.ID, escape(group)),
		retryAfter: "1",
	}
	return accepted
}

// groupDeletionStatus responds to a poll of a group's deletion. The ID of the operation is the group's name.
func (d *FrontDoor) groupDeletionStatus(_ *request, s Subscription, group string) *response {
	if g, exists := s.Group(group); exists && g.Deleting {
		return d.deletionAccepted(s, g.Name)
	}
	return newResponse(http.StatusOK, nil)
}

// runGroupDeletion deletes the resources of a marked group and then the group, in the background.
func (d *FrontDoor) runGroupDeletion(subscription, group string) {
	d.background.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		d.background.Go(func() {
			select {
			case <-d.closing:
				cancel()
			case <-ctx.Done():
			}
		})
		for {
			done, err := d.deleteGroupStep(ctx, subscription, group)
			if err != nil && ctx.Err() == nil {
				d.options.Log.Warn("deleting a resource group failed; retrying", logkey.SubscriptionID, subscription, logkey.ResourceGroup, group, logkey.Error, err)
			}
			if done {
				return
			}
			if backoff.Sleep(ctx, deletionPoll) != nil {
				return
			}
		}
	})
}

// deleteGroupStep requests the deletion of every cluster in the group that is not being deleted. If there are no
// clusters, it deletes the group and returns true.
func (d *FrontDoor) deleteGroupStep(ctx context.Context, subscription, group string) (done bool, err error) {
	s, ok := d.options.Directory.Subscription(subscription)
	if !ok {
		return true, nil
	}
	arm := &request{correlation: uuid.NewString()}
	arm.caller.TenantID, arm.caller.Name = s.TenantID, "Azure Resource Manager"
	// The provider rejects requests in a Deleted subscription and deletes all of its resources.
	if s.Provider == Registered && s.State != "Deleted" {
		clusters, err := d.listProvider(ctx, arm, "/subscriptions/"+s.ID+"/resourceGroups/"+escape(group)+"/providers/"+Provider+"/hcpOpenShiftClusters")
		if err != nil {
			return false, err
		}
		for _, cluster := range clusters {
			if cluster.Properties.ProvisioningState == "Deleting" {
				continue
			}
			_, _, err := d.callProvider(ctx, arm, http.MethodDelete, cluster.ID+"?api-version="+d.options.APIVersions[0], nil)
			var failure *response
			if err != nil && !(errors.As(err, &failure) && failure.status == http.StatusConflict) {
				return false, err
			}
		}
		if len(clusters) > 0 {
			return false, nil
		}
	}
	_, err = d.options.Directory.Update(subscription, func(s *Subscription) error {
		delete(s.Groups, asciifold.Lower(group))
		return nil
	})
	return err == nil, err
}
