package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

func elevationPath(id string) string { return "/elevations/" + url.PathEscape(id) }

// Elevate requests an elevation of the caller. It is active, or waits for the decision of another engineer.
func (c *Client) Elevate(ctx context.Context, asked adminv1.ElevationRequest) (*adminv1.Elevation, error) {
	elevation := &adminv1.Elevation{}
	if err := c.sendTwice(ctx, http.MethodPost, "/elevations", uuid.NewString(), asked, elevation); err != nil {
		return nil, err
	}
	return elevation, nil
}

// changeElevation requests a transition of an elevation. Each one may be repeated.
func (c *Client) changeElevation(ctx context.Context, method, path string, body any) (*adminv1.Elevation, error) {
	elevation := &adminv1.Elevation{}
	if err := c.sendTwice(ctx, method, path, "", body, elevation); err != nil {
		return nil, err
	}
	return elevation, nil
}

// ApproveElevation approves the request of another engineer.
func (c *Client) ApproveElevation(ctx context.Context, id, reason string) (*adminv1.Elevation, error) {
	return c.changeElevation(ctx, http.MethodPost, elevationPath(id)+"/approve", adminv1.DecisionRequest{Reason: reason})
}

// DenyElevation denies the request of another engineer.
func (c *Client) DenyElevation(ctx context.Context, id, reason string) (*adminv1.Elevation, error) {
	return c.changeElevation(ctx, http.MethodPost, elevationPath(id)+"/deny", adminv1.DecisionRequest{Reason: reason})
}

// ActivateElevation activates the caller's approved elevation.
func (c *Client) ActivateElevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	return c.changeElevation(ctx, http.MethodPost, elevationPath(id)+"/activate", nil)
}

// ReviewElevation closes the review of an emergency elevation of another engineer.
func (c *Client) ReviewElevation(ctx context.Context, id string, review adminv1.ReviewRequest) (*adminv1.Elevation, error) {
	return c.changeElevation(ctx, http.MethodPost, elevationPath(id)+"/review", review)
}

// EndElevation ends an elevation, or withdraws a request.
func (c *Client) EndElevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	return c.changeElevation(ctx, http.MethodDelete, elevationPath(id), nil)
}

// Elevation returns an elevation.
func (c *Client) Elevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	return get[adminv1.Elevation](ctx, c, elevationPath(id), nil)
}

// AwaitDecision waits until a request is not in the state Requested any more. Admin responds when the state changes.
func (c *Client) AwaitDecision(ctx context.Context, elevation *adminv1.Elevation) (*adminv1.Elevation, error) {
	heard := time.Now()
	for elevation.State == adminv1.ElevationRequested {
		current, err := get[adminv1.Elevation](ctx, c, elevationPath(elevation.ID), url.Values{"while": {string(adminv1.ElevationRequested)}})
		switch {
		case err == nil:
			elevation, heard = current, time.Now()
			continue
		case ctx.Err() != nil:
			return nil, fmt.Errorf("the request %s is not decided; see `hcpctl access show %s`: %w", elevation.ID, elevation.ID, ctx.Err())
		case !IsRetryable(err) || time.Since(heard) > awayFor:
			return nil, err
		}
		if backoff.Sleep(ctx, mostPoll) != nil {
			continue // the next request returns the error of the context
		}
	}
	return elevation, nil
}

// ElevationFilter selects elevations.
type ElevationFilter struct {
	// Open selects those that are active or can become so, Unreviewed emergencies without a review, and State those in a state.
	Open, Unreviewed bool
	State            adminv1.ElevationState
}

// Elevations returns the newest elevations that match, up to limit.
func (c *Client) Elevations(ctx context.Context, filter ElevationFilter, limit int) (list []adminv1.Elevation, more bool, err error) {
	query := url.Values{}
	if filter.Open {
		query.Set("open", "true")
	}
	if filter.Unreviewed {
		query.Set("unreviewed", "true")
	}
	if filter.State != "" {
		query.Set("state", string(filter.State))
	}
	return listNewest(ctx, c, "/elevations", query, limit, func(l *adminv1.ElevationList) ([]adminv1.Elevation, string) { return l.Items, l.NextPageToken })
}
