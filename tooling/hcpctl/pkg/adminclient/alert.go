package adminclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Alerts returns the firing alerts of the region and the silences. A list that admin could not read is nil.
func (c *Client) Alerts(ctx context.Context) (*adminv1.AlertList, error) {
	return get[adminv1.AlertList](ctx, c, "/alerts", nil)
}

// Silence silences alerts.
func (c *Client) Silence(ctx context.Context, asked adminv1.SilenceRequest) (*adminv1.Silence, error) {
	silence := &adminv1.Silence{}
	if err := c.sendTwice(ctx, http.MethodPost, "/silences", uuid.NewString(), asked, silence); err != nil {
		return nil, err
	}
	return silence, nil
}

// EndSilence ends a silence before its time. It may be repeated.
func (c *Client) EndSilence(ctx context.Context, id string, asked adminv1.EndSilenceRequest) (*adminv1.Silence, error) {
	silence := &adminv1.Silence{}
	if err := c.sendTwice(ctx, http.MethodPost, "/silences/"+url.PathEscape(id)+"/end", "", asked, silence); err != nil {
		return nil, err
	}
	return silence, nil
}
