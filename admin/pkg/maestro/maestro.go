// Package maestro reads Maestro's REST API, /api/maestro/v1, as far as admin shows it: the resource bundles with their
// manifests and their status. It never writes. Manifests leave this package as Maestro holds them, secrets included; who
// shows them cleans them first.
package maestro

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The bounds of one request: how many bundles it asks for, how much of an answer is read, and how long it may take.
const (
	mostIDs   = 50
	mostBytes = 64 << 20
	timeout   = 10 * time.Second
)

// Bundle is a resource bundle in the form of Maestro's API.
type Bundle struct {
	ID           string            `json:"id"`
	ConsumerName string            `json:"consumer_name"`
	Version      int64             `json:"version"`
	CreatedAt    time.Time         `json:"created_at"`
	UpdatedAt    time.Time         `json:"updated_at"`
	DeletedAt    *time.Time        `json:"deleted_at"`
	Manifests    []json.RawMessage `json:"manifests"`
	Status       json.RawMessage   `json:"status"`
}

// Client reads from one Maestro.
type Client struct {
	base string
	http *http.Client
}

// New makes a client of the REST API at a base URL, as in https://127.0.0.1:18403, under the process's identity.
func New(base string, identity *mesh.Identity) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: identity.ClientTLS(mesh.MaestroServer), MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second,
	}}}
}

// Close lets go of connections that are kept.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Bundles are those of the ids that Maestro knows, which are UUIDs, in no order.
func (c *Client) Bundles(ctx context.Context, ids []string) ([]Bundle, error) {
	var all []Bundle
	for len(ids) > 0 {
		some := ids[:min(mostIDs, len(ids))]
		ids = ids[len(some):]
		page, err := c.list(ctx, "id in ('"+strings.Join(some, "','")+"')", len(some))
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

func (c *Client) list(ctx context.Context, search string, size int) ([]Bundle, error) {
	query := url.Values{"search": {search}, "size": {strconv.Itoa(size)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/maestro/v1/resource-bundles?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, apierror.New(apierror.Unavailable, "Maestro cannot be reached.").WithCause(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, mostBytes+1))
	switch {
	case err != nil:
		return nil, apierror.New(apierror.Unavailable, "Maestro's answer was cut off.").WithCause(err)
	case len(content) > mostBytes:
		return nil, fmt.Errorf("maestro's list of resource bundles is larger than %d bytes", mostBytes)
	case response.StatusCode != http.StatusOK:
		return nil, apierror.New(apierror.Unavailable, "Maestro answered with status %d.", response.StatusCode)
	}
	var page struct {
		Items []Bundle `json:"items"`
	}
	if err := json.Unmarshal(content, &page); err != nil {
		return nil, fmt.Errorf("reading Maestro's list of resource bundles: %w", err)
	}
	return page.Items, nil
}
