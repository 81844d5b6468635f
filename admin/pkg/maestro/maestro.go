// Package maestro reads resource bundles from Maestro's REST API, /api/maestro/v1. It never writes. Bundles contain secrets:
// callers remove them before they return bundles to users.
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

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The limits of one request: IDs, bundles per page, bytes of the response, and duration.
const (
	maxIDs   = 50
	pageSize = 200
	maxBytes = 64 << 20
	timeout  = 10 * time.Second
)

// source is Maestro's name for Cluster Service.
const source = "cluster-service"

// Bundle is a resource bundle as in Maestro's API.
type Bundle struct {
	ID           string            `json:"id"`
	ConsumerName string            `json:"consumer_name"`
	Version      int64             `json:"version"`
	CreatedAt    time.Time         `json:"created_at"`
	UpdatedAt    time.Time         `json:"updated_at"`
	DeletedAt    *time.Time        `json:"deleted_at"`
	Metadata     json.RawMessage   `json:"metadata"`
	Manifests    []json.RawMessage `json:"manifests"`
	Status       json.RawMessage   `json:"status"`
}

// ClusterID returns the cluster ID in the labels of the bundle; empty if there is none.
func (b *Bundle) ClusterID() string {
	var metadata struct {
		Labels map[string]string `json:"labels"`
	}
	if json.Unmarshal(b.Metadata, &metadata) != nil {
		return ""
	}
	return metadata.Labels[managementcluster.LabelClusterID]
}

// Objects returns the objects in the bundle, for example HostedCluster ocm-local-…/name.
func (b *Bundle) Objects() []string {
	objects := []string{}
	for _, manifest := range b.Manifests {
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name, Namespace string
			} `json:"metadata"`
		}
		if json.Unmarshal(manifest, &object) != nil {
			continue
		}
		name := object.Metadata.Name
		if object.Metadata.Namespace != "" {
			name = object.Metadata.Namespace + "/" + name
		}
		objects = append(objects, object.Kind+" "+name)
	}
	return objects
}

// Client reads from one Maestro server. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// New returns a client of the REST API at a base URL, for example https://127.0.0.1:18403. It uses the identity of the process.
func New(base string, identity mesh.Transport) *Client {
	transport := identity.ClientTransport(mesh.MaestroServer)
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 8, 90*time.Second
	return &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: timeout, Transport: transport}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Bundles returns the bundles with the given IDs, which are UUIDs, in no order. Unknown IDs are left out.
func (c *Client) Bundles(ctx context.Context, ids []string) ([]Bundle, error) {
	var all []Bundle
	for len(ids) > 0 {
		some := ids[:min(maxIDs, len(ids))]
		ids = ids[len(some):]
		found, err := c.list(ctx, url.Values{"search": {"id in ('" + strings.Join(some, "','") + "')"}, "size": {strconv.Itoa(len(some))}})
		if err != nil {
			return nil, err
		}
		all = append(all, found.Items...)
	}
	return all, nil
}

// EachPage calls visit with each page of the bundles of Cluster Service on all management clusters, ordered by ID. It does not hold
// all bundles in memory. It returns the first error of visit.
func (c *Client) EachPage(ctx context.Context, visit func([]Bundle) error) error {
	for number := 1; ; number++ {
		found, err := c.list(ctx, url.Values{"search": {"source = '" + source + "'"}, "orderBy": {"id"}, "page": {strconv.Itoa(number)}, "size": {strconv.Itoa(pageSize)}})
		if err != nil {
			return err
		}
		if err := visit(found.Items); err != nil || len(found.Items) < pageSize {
			return err
		}
	}
}

// page is a list response.
type page struct {
	Items []Bundle `json:"items"`
}

func (c *Client) list(ctx context.Context, query url.Values) (*page, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+maestroapi.RESTPath+"/resource-bundles?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, apierror.New(apierror.Unavailable, "Maestro cannot be reached.").WithCause(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, apierror.New(apierror.Unavailable, "Maestro's response is incomplete.").WithCause(err)
	case len(content) > maxBytes:
		return nil, fmt.Errorf("maestro's list of resource bundles is larger than %d bytes", maxBytes)
	case response.StatusCode != http.StatusOK:
		return nil, apierror.New(apierror.Unavailable, "Maestro responded with status %d.", response.StatusCode)
	}
	found := &page{}
	if err := json.Unmarshal(content, found); err != nil {
		return nil, fmt.Errorf("reading Maestro's list of resource bundles: %w", err)
	}
	return found, nil
}
