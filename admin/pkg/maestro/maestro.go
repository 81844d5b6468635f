// Package maestro reads resource bundles from Maestro's REST API, /api/maestro/v1. It never writes. Bundles contain secrets:
// callers remove them before they return bundles to users.
package maestro

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// The limits of one request: IDs, bundles per page, bytes of a bundle, and duration. Maestro refuses bundles of more than 500 KiB.
const (
	maxIDs    = 50
	pageSize  = 200
	maxBundle = 4 << 20
	timeout   = 10 * time.Second
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

// Summary returns the bundle as a possible orphan, with the cluster ID in its labels and without its content.
func (b *Bundle) Summary() adminv1.Orphan {
	var metadata struct {
		Labels map[string]string `json:"labels"`
	}
	_ = json.Unmarshal(b.Metadata, &metadata) // a bundle need not have labels
	return adminv1.Orphan{ID: b.ID, Consumer: b.ConsumerName, Version: b.Version, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt, DeletedAt: b.DeletedAt,
		ClusterID: metadata.Labels[managementcluster.LabelClusterID], Objects: b.objects()}
}

// objects returns the objects in the bundle, for example HostedCluster ocm-local-…/name.
func (b *Bundle) objects() []string {
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

// Bundles returns the bundles with the given IDs, which are UUIDs, in no order. Unknown IDs are left out, and so are malformed bundles, which ignored has.
func (c *Client) Bundles(ctx context.Context, ids []string) (all []Bundle, ignored wire.Ignored, err error) {
	for len(ids) > 0 {
		some := ids[:min(maxIDs, len(ids))]
		ids = ids[len(some):]
		_, err := c.list(ctx, url.Values{"search": {"id in ('" + strings.Join(some, "','") + "')"}, "size": {strconv.Itoa(len(some))}},
			func(b Bundle) { all = append(all, b) }, &ignored)
		if err != nil {
			return nil, wire.Ignored{}, err
		}
	}
	return all, ignored, nil
}

// EachPage calls visit with the summaries of each page of the bundles of Cluster Service on all management clusters, ordered by ID. It holds one page, and the
// content of one bundle. It leaves out malformed bundles, which ignored has. It returns the first error of visit.
func (c *Client) EachPage(ctx context.Context, visit func([]adminv1.Orphan) error) (ignored wire.Ignored, err error) {
	for number := 1; ; number++ {
		page := make([]adminv1.Orphan, 0, pageSize)
		read, err := c.list(ctx, url.Values{"search": {"source = '" + source + "'"}, "orderBy": {"id"}, "page": {strconv.Itoa(number)}, "size": {strconv.Itoa(pageSize)}},
			func(b Bundle) { page = append(page, b.Summary()) }, &ignored)
		if err != nil {
			return ignored, err
		}
		if err := visit(page); err != nil || read < pageSize {
			return ignored, err
		}
	}
}

// list calls use with each bundle of a list, and adds the malformed ones to ignored. It returns the number of both.
func (c *Client) list(ctx context.Context, query url.Values, use func(Bundle), ignored *wire.Ignored) (read int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+maestroapi.RESTPath+"/resource-bundles?"+query.Encode(), nil)
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, apierror.New(apierror.Unavailable, "Maestro cannot be reached.").WithCause(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return 0, apierror.New(apierror.Unavailable, "Maestro responded with status %d.", response.StatusCode)
	}
	before := ignored.Count
	items, failure := wire.Stream(response.Body, "items", maxBundle)
	wire.Elements("items", "id", items, func(_ int, b Bundle) error {
		if b.ID == "" {
			return errors.New("the bundle has no ID")
		}
		read++
		use(b)
		return nil
	}, ignored.Add)
	if err := failure(); err != nil {
		return 0, apierror.New(apierror.Unavailable, "Maestro's list of bundles cannot be read.").WithCause(err)
	}
	return read + ignored.Count - before, nil
}
