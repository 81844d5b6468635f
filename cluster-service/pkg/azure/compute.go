package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

// Compute reads what Azure Compute offers to a subscription in a region. Both methods return an error for a malformed response.
type Compute interface {
	// Sizes returns the sizes of virtual machines that a node pool can have and that Azure offers in the region, by name in lower case.
	Sizes(ctx context.Context, location string) (map[string]Size, error)
	// Quotas returns the quotas of the subscription in the region, by name in lower case. totalCores is always one of them.
	Quotas(ctx context.Context, location string) (map[string]Quota, error)
}

// Size is a size of virtual machines in a region.
type Size struct {
	// Family is the name of its quota; empty if Azure reports none.
	Family string
	// Cores is the number of cores of a virtual machine; 0 if Azure reports none.
	Cores int64
	// Zones are the availability zones that have the size, sorted.
	Zones []string
	// Restriction is why the subscription cannot use the size in the region; empty if it can. RestrictedZones has the reasons for single zones.
	Restriction     string
	RestrictedZones map[string]string
}

// Quota is the limit of a resource. A negative limit is none.
type Quota struct{ Used, Limit int64 }

// Left returns how much of a quota is left.
func (q Quota) Left() int64 { return max(0, q.Limit-q.Used) }

const (
	// totalCores is the quota of cores of all families.
	totalCores = "cores"
	// skusAPIVersion and usagesAPIVersion are the api-versions of Microsoft.Compute.
	skusAPIVersion   = "2021-07-01"
	usagesAPIVersion = "2024-07-01"
	// maxComputeResponse is the maximum size of all pages of a list, in bytes, and maxComputePages their maximum number. The sizes of a region have
	// about 3 MB.
	maxComputeResponse = 16 << 20
	maxComputePages    = 32
	// maxErrorResponse is the part of an error response that is read, in bytes.
	maxErrorResponse = 64 << 10
)

// azureName matches the names of Azure that messages to customers contain.
var azureName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// computeClient implements Compute. It has the used part of armcompute, because the package of that client takes longer to compile than all other
// packages of the Azure SDK.
type computeClient struct {
	*arm.Client
	subscription string
}

// resourceSKU is the used part of a resource SKU, as the API of resource SKUs returns it.
type resourceSKU struct {
	ResourceType string   `json:"resourceType"`
	Name         string   `json:"name"`
	Family       string   `json:"family"`
	Locations    []string `json:"locations"`
	LocationInfo []struct {
		Location string   `json:"location"`
		Zones    []string `json:"zones"`
	} `json:"locationInfo"`
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capabilities"`
	Restrictions []skuRestriction `json:"restrictions"`
}

type skuRestriction struct {
	Type            string   `json:"type"`
	Values          []string `json:"values"`
	RestrictionInfo struct {
		Locations []string `json:"locations"`
		Zones     []string `json:"zones"`
	} `json:"restrictionInfo"`
	ReasonCode string `json:"reasonCode"`
}

// Sizes implements Compute.
func (c computeClient) Sizes(ctx context.Context, location string) (map[string]Size, error) {
	usable := map[string]bool{}
	for _, name := range vmsize.Names() {
		usable[name] = true
	}
	sizes, machines := map[string]Size{}, 0
	query := url.Values{"api-version": {skusAPIVersion}, "$filter": {"location eq '" + location + "'"}}
	err := list(ctx, c, "/providers/Microsoft.Compute/skus", query, func(sku resourceSKU) error {
		if sku.ResourceType != "virtualMachines" || !containsFold(sku.Locations, location) {
			return nil
		}
		machines++
		if !usable[sku.Name] {
			return nil
		}
		size, err := sku.size(location)
		sizes[strings.ToLower(sku.Name)] = size
		return err
	})
	if err == nil && machines == 0 {
		err = errors.New("the list of sizes has no virtual machine")
	}
	return sizes, err
}

func (s *resourceSKU) size(location string) (Size, error) {
	size := Size{RestrictedZones: map[string]string{}}
	if azureName.MatchString(s.Family) {
		size.Family = s.Family
	}
	for _, info := range s.LocationInfo {
		if strings.EqualFold(info.Location, location) {
			size.Zones = slices.Sorted(slices.Values(info.Zones))
		}
	}
	for _, c := range s.Capabilities {
		if c.Name != "vCPUs" {
			continue
		}
		cores, err := strconv.ParseInt(c.Value, 10, 32)
		if err != nil || cores < 1 {
			return Size{}, fmt.Errorf("the number of cores of %s is malformed", s.Name)
		}
		size.Cores = cores
	}
	for _, r := range s.Restrictions {
		reason := r.ReasonCode
		if !azureName.MatchString(reason) {
			reason = "without a reason"
		}
		if locations := slices.Concat(r.Values, r.RestrictionInfo.Locations); len(locations) > 0 && !containsFold(locations, location) {
			continue
		}
		switch r.Type {
		case "Location":
			size.Restriction = reason
		case "Zone":
			for _, zone := range r.RestrictionInfo.Zones {
				size.RestrictedZones[zone] = reason
			}
		}
	}
	return size, nil
}

// Quotas implements Compute.
func (c computeClient) Quotas(ctx context.Context, location string) (map[string]Quota, error) {
	type usage struct {
		CurrentValue *int64 `json:"currentValue"`
		Limit        *int64 `json:"limit"`
		Name         struct {
			Value string `json:"value"`
		} `json:"name"`
	}
	quotas := map[string]Quota{}
	query := url.Values{"api-version": {usagesAPIVersion}}
	err := list(ctx, c, "/providers/Microsoft.Compute/locations/"+url.PathEscape(location)+"/usages", query, func(u usage) error {
		if u.CurrentValue == nil || u.Limit == nil || u.Name.Value == "" || *u.CurrentValue < 0 {
			return errors.New("a quota is malformed")
		}
		if name := strings.ToLower(u.Name.Value); name == totalCores || strings.HasSuffix(name, "family") {
			quotas[name] = Quota{Used: *u.CurrentValue, Limit: *u.Limit}
		}
		return nil
	})
	if _, ok := quotas[totalCores]; err == nil && !ok {
		err = errors.New("the list of quotas has no quota of all cores")
	}
	return quotas, err
}

// list calls each for all items of a list below the subscription.
func list[T any](ctx context.Context, c computeClient, path string, query url.Values, each func(T) error) error {
	next := runtime.JoinPaths(c.Endpoint(), "/subscriptions/"+url.PathEscape(c.subscription)+path) + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
	left := int64(maxComputeResponse)
	for range maxComputePages {
		page, size, err := readPage[T](ctx, c, next, left)
		if err != nil {
			return err
		}
		for _, item := range page.Value {
			if err := each(item); err != nil {
				return err
			}
		}
		if page.NextLink == "" {
			return nil
		}
		// The token is sent nowhere else.
		if !sameOrigin(page.NextLink, c.Endpoint()) {
			return errors.New("the link to the next page is not one of Azure Resource Manager")
		}
		next, left = page.NextLink, left-size
	}
	return fmt.Errorf("the list has more than %d pages", maxComputePages)
}

type computePage[T any] struct {
	Value    []T    `json:"value"`
	NextLink string `json:"nextLink"`
}

// readPage returns a page of a list, and its size in bytes. It reads at most limit bytes.
func readPage[T any](ctx context.Context, c computeClient, link string, limit int64) (page computePage[T], size int64, err error) {
	request, err := runtime.NewRequest(ctx, http.MethodGet, link)
	if err != nil {
		return page, 0, err
	}
	request.Raw().Header.Set("Accept", "application/json")
	runtime.SkipBodyDownload(request)
	response, err := c.Pipeline().Do(request)
	if err != nil {
		return page, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if !runtime.HasStatusCode(response, http.StatusOK) {
		return page, 0, runtime.NewResponseError(response)
	}
	body := http.MaxBytesReader(nil, response.Body, limit)
	decoder := json.NewDecoder(body)
	err = decoder.Decode(&page)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		err = fmt.Errorf("the list has more than %d bytes", maxComputeResponse)
	case err != nil:
		err = errors.New("the list is malformed")
	}
	return page, decoder.InputOffset(), err
}

// bounded is a transport that reads only the begin of an error response: the SDK reads all of it, also without a download of the body.
type bounded struct{ policy.Transporter }

// Do implements policy.Transporter.
func (b bounded) Do(request *http.Request) (*http.Response, error) {
	response, err := b.Transporter.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxErrorResponse), response.Body}
	}
	return response, err
}

func sameOrigin(link, endpoint string) bool {
	a, err := url.Parse(link)
	if err != nil {
		return false
	}
	b, err := url.Parse(endpoint)
	return err == nil && a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

func containsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, text) })
}
