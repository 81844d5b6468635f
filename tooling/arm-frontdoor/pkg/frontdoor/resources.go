package frontdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// resource holds the fields of a provider's resource that lists contain.
type resource struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Identity   json.RawMessage   `json:"identity,omitempty"`
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
	} `json:"properties"`
}

// maxPages bounds the pages of a list.
const maxPages = 1000

// listProvider returns all pages of a list of the resource provider.
func (d *FrontDoor) listProvider(ctx context.Context, r *request, path string) ([]resource, error) {
	var all []resource
	next := path + "?api-version=" + d.options.APIVersions[0]
	for range maxPages {
		data, _, err := d.callProvider(ctx, r, http.MethodGet, next, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Value    []resource `json:"value"`
			NextLink string     `json:"nextLink"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("reading a list of the resource provider: %w", err)
		}
		all = append(all, page.Value...)
		if page.NextLink == "" {
			return all, nil
		}
		link, err := url.Parse(page.NextLink)
		if err != nil {
			return nil, fmt.Errorf("reading a list of the resource provider: %w", err)
		}
		next = link.RequestURI()
	}
	return nil, fmt.Errorf("a list of the resource provider has more than %d pages", maxPages)
}

// resourceFilterPattern matches the only supported $filter of resource lists.
var resourceFilterPattern = regexp.MustCompile(`(?i)^\s*resourceType\s+eq\s+'([^']+)'\s*$`)

// listResources responds to ARM's generic list of a subscription or a resource group with the clusters and their node
// pools.
func (d *FrontDoor) listResources(r *request, s Subscription) *response {
	resourceType := ""
	if filter := r.URL.Query().Get("$filter"); filter != "" {
		match := resourceFilterPattern.FindStringSubmatch(filter)
		if match == nil {
			return newError(http.StatusBadRequest, "InvalidFilterInQueryString", "Invalid $filter '%s' specified in the query string; only resourceType eq '…' is supported.", filter)
		}
		resourceType = match[1]
	}
	scope := "/subscriptions/" + s.ID
	if r.path.group != "" {
		g, ok := s.Group(r.path.group)
		if !ok {
			return newError(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
		}
		scope += "/resourceGroups/" + escape(g.Name)
	}
	values := []any{}
	if s.Provider != Registered {
		return newResponse(http.StatusOK, map[string]any{"value": values})
	}
	add := func(found resource) {
		if resourceType != "" && !asciifold.Equal(found.Type, resourceType) {
			return
		}
		value := map[string]any{"id": found.ID, "name": found.Name, "type": found.Type, "location": found.Location, "provisioningState": found.Properties.ProvisioningState}
		if found.Tags != nil {
			value["tags"] = found.Tags
		}
		if found.Identity != nil {
			value["identity"] = found.Identity
		}
		values = append(values, value)
	}
	clusters, err := d.listProvider(r.Context(), r, scope+"/providers/"+Provider+"/hcpOpenShiftClusters")
	if err != nil {
		return d.errorResponse(err)
	}
	withPools := resourceType == "" || asciifold.Equal(resourceType, Provider+"/hcpOpenShiftClusters/nodePools")
	for _, cluster := range clusters {
		add(cluster)
		if !withPools {
			continue
		}
		pools, err := d.listProvider(r.Context(), r, cluster.ID+"/nodePools")
		if err != nil {
			return d.errorResponse(err)
		}
		for _, pool := range pools {
			add(pool)
		}
	}
	return newResponse(http.StatusOK, map[string]any{"value": values})
}
