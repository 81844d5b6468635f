package frontdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
)

// resource is what the door reads of a resource of the provider.
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

// maxPages bounds how much of a list is read for one answer.
const maxPages = 1000

// list reads all pages of a list of the resource provider.
func (d *Door) list(ctx context.Context, r *request, path string) ([]resource, error) {
	var all []resource
	next := path + "?api-version=" + d.options.APIVersions[0]
	for range maxPages {
		data, _, err := d.ask(ctx, r, http.MethodGet, next, nil)
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

// resourceFilter is the one $filter that lists of resources take here.
var resourceFilter = regexp.MustCompile(`(?i)^\s*resourceType\s+eq\s+'([^']+)'\s*$`)

// listResources answers ARM's generic list of a subscription or a resource group: clusters and their node pools.
func (d *Door) listResources(r *request, s directory.Subscription) *answer {
	wanted := ""
	if filter := r.URL.Query().Get("$filter"); filter != "" {
		match := resourceFilter.FindStringSubmatch(filter)
		if match == nil {
			return refuse(http.StatusBadRequest, "InvalidFilterInQueryString", "Invalid $filter '%s' specified in the query string; only resourceType eq '…' is supported here.", filter)
		}
		wanted = match[1]
	}
	scope := "/subscriptions/" + s.ID
	if r.path.group != "" {
		g, ok := s.Group(r.path.group)
		if !ok {
			return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", r.path.group)
		}
		scope += "/resourceGroups/" + escape(g.Name)
	}
	values := []any{}
	if s.Provider != directory.Registered {
		return give(http.StatusOK, map[string]any{"value": values})
	}
	show := func(found resource) {
		if wanted != "" && !strings.EqualFold(found.Type, wanted) {
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
	clusters, err := d.list(r.Context(), r, scope+"/providers/"+Provider+"/hcpOpenShiftClusters")
	if err != nil {
		return d.fail(err)
	}
	withPools := wanted == "" || strings.EqualFold(wanted, Provider+"/hcpOpenShiftClusters/nodePools")
	for _, cluster := range clusters {
		show(cluster)
		if !withPools {
			continue
		}
		pools, err := d.list(r.Context(), r, cluster.ID+"/nodePools")
		if err != nil {
			return d.fail(err)
		}
		for _, pool := range pools {
			show(pool)
		}
	}
	return give(http.StatusOK, map[string]any{"value": values})
}
