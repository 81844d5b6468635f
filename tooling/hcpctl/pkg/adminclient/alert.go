package adminclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Silence silences alerts.
func (c *Client) Silence(ctx context.Context, asked adminv1.SilenceRequest) (*adminv1.Silence, error) {
	return call[adminv1.Silence](ctx, c, http.MethodPost, "/silences", uuid.NewString(), asked)
}

// EndSilence ends a silence before its time. It may be repeated.
func (c *Client) EndSilence(ctx context.Context, id string, asked adminv1.EndSilenceRequest) (*adminv1.Silence, error) {
	return call[adminv1.Silence](ctx, c, http.MethodPost, "/silences/"+url.PathEscape(id)+"/end", "", asked)
}
