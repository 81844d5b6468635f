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

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The bounds of one request: how many bundles it asks for, how much of an answer is read, and how long it may take.
const (
	maxIDs   = 50
	pageSize = 200
	maxBytes = 64 << 20
	timeout  = 10 * time.Second
)

// source is the name under which Cluster Service publishes.
const source = "cluster-service"

// Bundle is a resource bundle in the form of Maestro's API.
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

// ClusterID is the id below ARM of the cluster that its label names; empty when it has none.
func (b *Bundle) ClusterID() string {
	var metadata struct {
		Labels map[string]string `json:"labels"`
	}
	if json.Unmarshal(b.Metadata, &metadata) != nil {
		return ""
	}
	return metadata.Labels[managementcluster.LabelClusterID]
}

// Objects are what it carries, as in HostedCluster ocm-local-…/name.
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

// EachPage calls take for the bundles of Cluster Service, of all management clusters, in order of id, a page at a time: a region has
// more of them than can be held. It ends with the first error of take.
func (c *Client) EachPage(ctx context.Context, take func([]Bundle) error) error {
	for number := 1; ; number++ {
		found, err := c.list(ctx, url.Values{"search": {"source = '" + source + "'"}, "orderBy": {"id"}, "page": {strconv.Itoa(number)}, "size": {strconv.Itoa(pageSize)}})
		if err != nil {
			return err
		}
		if err := take(found.Items); err != nil || len(found.Items) < pageSize {
			return err
		}
	}
}

// page is one of Maestro's lists.
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
		return nil, apierror.New(apierror.Unavailable, "Maestro's answer was cut off.").WithCause(err)
	case len(content) > maxBytes:
		return nil, fmt.Errorf("maestro's list of resource bundles is larger than %d bytes", maxBytes)
	case response.StatusCode != http.StatusOK:
		return nil, apierror.New(apierror.Unavailable, "Maestro answered with status %d.", response.StatusCode)
	}
	found := &page{}
	if err := json.Unmarshal(content, found); err != nil {
		return nil, fmt.Errorf("reading Maestro's list of resource bundles: %w", err)
	}
	return found, nil
}
