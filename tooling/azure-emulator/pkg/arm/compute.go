package arm

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/vmsize"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// ComputeLimits are the differences of a subscription from the others, which can use all sizes of package vmsize in all three zones and have large
// quotas.
type ComputeLimits struct {
	Subscription string `json:"subscription"`
	// Absent are sizes that the region does not have. Restricted has the zones in which the subscription cannot use a size, by name; without a
	// zone it cannot use the size at all.
	Absent     []string            `json:"absent,omitempty"`
	Restricted map[string][]string `json:"restricted,omitempty"`
	// Quotas are those of families, and of all cores with the name "cores".
	Quotas map[string]ComputeQuota `json:"quotas,omitempty"`
}

// ComputeQuota is a quota of cores.
type ComputeQuota struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

const (
	skusVersion, usagesVersion = "2021-07-01", "2024-07-01"
	// familyQuota and coresQuota are the limits of a subscription without ComputeLimits.
	familyQuota = 100_000
	coresQuota  = 1_000_000
)

// ServeComputeLimits replaces the ComputeLimits of a subscription.
func (s *Server) ServeComputeLimits(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var limits ComputeLimits
	if err == nil {
		err = json.Unmarshal(body, &limits)
	}
	if err != nil || limits.Subscription == "" {
		http.Error(w, "the body is not the limits of a subscription", http.StatusBadRequest)
		return
	}
	if err := s.SetComputeLimits(limits); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// SetComputeLimits replaces the ComputeLimits of a subscription.
func (s *Server) SetComputeLimits(limits ComputeLimits) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.Put(compute, strings.ToLower(limits.Subscription), limits) })
}

// routeCompute responds with sizes or quotas. No other type of Azure Compute is emulated.
func (c *call) routeCompute() (*response, error) {
	lists := map[string]struct {
		version string
		list    func(ComputeLimits) (*response, error)
	}{"microsoft.compute/skus": {skusVersion, c.listSizes}, "microsoft.compute/locations/usages": {usagesVersion, c.listUsages}}
	found, ok := lists[c.path.lowerType]
	switch {
	case !ok || c.path.name != "":
		return nil, notImplemented("The type '%s' is not emulated.", c.path.typ)
	case c.method != http.MethodGet:
		return nil, c.methodNotEmulated()
	}
	if err := c.checkVersion(c.path.typ, []string{found.version}); err != nil {
		return nil, err
	}
	var limits ComputeLimits
	if _, err := c.tx.Get(compute, strings.ToLower(c.path.subscription), &limits); err != nil {
		return nil, err
	}
	return found.list(limits)
}

// listSizes responds with a page of the sizes of the region. Azure filters only by location.
func (c *call) listSizes(limits ComputeLimits) (*response, error) {
	if filter := c.query.Get("$filter"); !strings.EqualFold(filter, "location eq '"+c.Location+"'") {
		return nil, notImplemented("The filter '%s' is not emulated: the emulator has only the location '%s'.", filter, c.Location)
	}
	names := slices.DeleteFunc(vmsize.Names(), func(name string) bool { return slices.Contains(limits.Absent, name) })
	from, _ := strconv.Atoi(c.query.Get("$skiptoken"))
	from = min(max(0, from), len(names))
	value, body := []any{}, map[string]any{}
	for i, name := range names[from:] {
		if i == listPage {
			query := maps.Clone(c.query)
			query.Set("$skiptoken", strconv.Itoa(from+i))
			next := url.URL{Scheme: "https", Host: c.host, Path: c.path.id, RawQuery: query.Encode()}
			body["nextLink"] = next.String()
			break
		}
		family, cores := familyOf(name)
		restrictions := []any{}
		if zones, isRestricted := limits.Restricted[name]; isRestricted {
			info, kind := map[string]any{"locations": []string{c.Location}}, "Location"
			if len(zones) > 0 {
				info["zones"], kind = zones, "Zone"
			}
			restrictions = append(restrictions, map[string]any{"type": kind, "values": []string{c.Location}, "restrictionInfo": info, "reasonCode": "NotAvailableForSubscription"})
		}
		value = append(value, map[string]any{"resourceType": "virtualMachines", "name": name, "tier": "Standard", "size": strings.TrimPrefix(name, "Standard_"), "family": family,
			"locations":    []string{c.Location},
			"locationInfo": []any{map[string]any{"location": c.Location, "zones": []string{"3", "1", "2"}, "zoneDetails": []any{}}},
			"capabilities": []any{map[string]string{"name": "vCPUs", "value": strconv.FormatInt(cores, 10)}},
			"restrictions": restrictions})
	}
	body["value"] = value
	return &response{status: http.StatusOK, body: body}, nil
}

// listUsages responds with the quotas of all families and of all cores.
func (c *call) listUsages(limits ComputeLimits) (*response, error) {
	if location := c.path.names[0]; !strings.EqualFold(location, c.Location) {
		return nil, badRequest("NoRegisteredProviderFound", "No registered resource provider found for location '%s'.", location)
	}
	quotas := map[string]ComputeQuota{"cores": {Limit: coresQuota}}
	for _, name := range vmsize.Names() {
		family, _ := familyOf(name)
		quotas[family] = ComputeQuota{Limit: familyQuota}
	}
	maps.Copy(quotas, limits.Quotas)
	value := []any{}
	for _, name := range slices.Sorted(maps.Keys(quotas)) {
		text := "Total Regional vCPUs"
		if name != "cores" {
			text = name + " vCPUs"
		}
		value = append(value, map[string]any{"unit": "Count", "currentValue": quotas[name].Used, "limit": quotas[name].Limit,
			"name": map[string]string{"value": name, "localizedValue": text}})
	}
	return &response{status: http.StatusOK, body: map[string]any{"value": value}}, nil
}

// sizeParts matches the parts of the name of a size: the family, the cores, the features and the rest with the version.
var sizeParts = regexp.MustCompile(`^Standard_([A-Z]+)([0-9]+)(?:-[0-9]+)?([a-z]*)((?:_[A-Za-z0-9]+)*)$`)

// familyOf derives the family and the number of cores of a size from its name, by Azure's naming convention. The cases of letters in names of
// families follow no rule in Azure.
func familyOf(name string) (family string, cores int64) {
	parts := sizeParts.FindStringSubmatch(name)
	if parts == nil {
		return "", 0
	}
	cores, _ = strconv.ParseInt(parts[2], 10, 64) // the pattern has only digits
	return fmt.Sprintf("standard%s%s%sFamily", parts[1], strings.ToUpper(parts[3]), strings.ReplaceAll(parts[4], "_", "")), cores
}
