package adminclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// Elevate requests an elevation of the caller. It is active, or waits for the decision of another engineer.
func (c *Client) Elevate(ctx context.Context, asked adminv1.ElevationRequest) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodPost, adminv1.ReadElevations.Path, uuid.NewString(), asked)
}

// ApproveElevation approves the request of another engineer.
func (c *Client) ApproveElevation(ctx context.Context, id, reason string) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodPost, adminv1.ReadElevation.Target(id)+"/approve", "", adminv1.DecisionRequest{Reason: reason})
}

// DenyElevation denies the request of another engineer.
func (c *Client) DenyElevation(ctx context.Context, id, reason string) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodPost, adminv1.ReadElevation.Target(id)+"/deny", "", adminv1.DecisionRequest{Reason: reason})
}

// ActivateElevation activates the caller's approved elevation.
func (c *Client) ActivateElevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodPost, adminv1.ReadElevation.Target(id)+"/activate", "", nil)
}

// ReviewElevation closes the review of an emergency elevation of another engineer.
func (c *Client) ReviewElevation(ctx context.Context, id string, review adminv1.ReviewRequest) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodPost, adminv1.ReadElevation.Target(id)+"/review", "", review)
}

// EndElevation ends an elevation, or withdraws a request.
func (c *Client) EndElevation(ctx context.Context, id string) (*adminv1.Elevation, error) {
	return call[adminv1.Elevation](ctx, c, http.MethodDelete, adminv1.ReadElevation.Target(id), "", nil)
}

// AwaitDecision waits until a request is not in the state Requested any more. Admin responds when the state changes.
func (c *Client) AwaitDecision(ctx context.Context, elevation *adminv1.Elevation) (*adminv1.Elevation, error) {
	heard := time.Now()
	for elevation.State == adminv1.ElevationRequested {
		current, err := Get(ctx, c, adminv1.ReadElevation, Query{"while": adminv1.ElevationRequested}, elevation.ID)
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
