package emulator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/vmsize"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

const (
	computePath = "/subscriptions/" + subscription + "/providers/Microsoft.Compute/"
	sizesPath   = computePath + "skus?api-version=2021-07-01&$filter=location%20eq%20'westus3'"
	quotasPath  = computePath + "locations/westus3/usages?api-version=2024-07-01"
)

// TestSizesAndQuotas lists the sizes and quotas of a subscription before and after its limits are set.
func TestSizesAndQuotas(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{})
	get := func(path string) (items []string, next string) {
		var page struct {
			Value    []json.RawMessage `json:"value"`
			NextLink string            `json:"nextLink"`
		}
		must.Do(t, json.Unmarshal([]byte(arms(t, azure, customerID, "GET", path, "", http.StatusOK, "")), &page))
		for _, item := range page.Value {
			items = append(items, string(item))
		}
		_, next, _ = strings.Cut(page.NextLink, "/subscriptions/")
		return items, "/subscriptions/" + next
	}
	sizes := func() string {
		first, next := get(sizesPath)
		second, _ := get(strings.ReplaceAll(next, "+", "%20"))
		if len(first) != 100 || len(first)+len(second) > len(vmsize.Names()) {
			t.Errorf("%d and %d of %d sizes", len(first), len(second), len(vmsize.Names()))
		}
		return strings.Join(append(first, second...), "\n")
	}
	const d8s = `"vCPUs","value":"8"}],"family":"standardDSv3Family","locationInfo":[{"location":"westus3","zoneDetails":[],"zones":["3","1","2"]}],"locations":["westus3"],"name":"Standard_D8s_v3","resourceType":"virtualMachines","restrictions":[`
	if all := sizes(); !strings.Contains(all, d8s+"]") || strings.Count(all, "\n")+1 != len(vmsize.Names()) {
		t.Errorf("the sizes are\n%s", all)
	}
	if all, _ := get(quotasPath); !strings.Contains(strings.Join(all, "\n"), `{"currentValue":0,"limit":1000000,"name":{"localizedValue":"Total Regional vCPUs","value":"cores"},"unit":"Count"}`) {
		t.Errorf("the quotas are %v", all)
	}
	limits := `{"subscription":"` + strings.ToUpper(subscription) + `","absent":["Standard_D4s_v3"],"restricted":{"Standard_D8s_v3":["2"],"Standard_D16s_v3":[]},"quotas":{"standardDSv3Family":{"used":3,"limit":4}}}`
	arms(t, azure, nobodyID, "POST", "/_emulator/compute", limits, http.StatusOK, "")
	all := sizes()
	for _, want := range []string{
		d8s + `{"reasonCode":"NotAvailableForSubscription","restrictionInfo":{"locations":["westus3"],"zones":["2"]},"type":"Zone","values":["westus3"]}]`,
		`"name":"Standard_D16s_v3","resourceType":"virtualMachines","restrictions":[{"reasonCode":"NotAvailableForSubscription","restrictionInfo":{"locations":["westus3"]},"type":"Location","values":["westus3"]}]`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the sizes do not have %s", want)
		}
	}
	if strings.Contains(all, `"Standard_D4s_v3"`) {
		t.Error("the sizes have one that is absent")
	}
	if all, _ := get(quotasPath); !strings.Contains(strings.Join(all, "\n"), `{"currentValue":3,"limit":4,"name":{"localizedValue":"standardDSv3Family vCPUs","value":"standardDSv3Family"},"unit":"Count"}`) {
		t.Errorf("the quotas are %v", all)
	}
	for path, want := range map[string]int{
		strings.ReplaceAll(sizesPath, "westus3", "mars"): 501, computePath + "skus?api-version=2021-07-01": 501, computePath + "skus?api-version=2099-01-01": 400,
		strings.ReplaceAll(quotasPath, "westus3", "mars"): 400, computePath + "locations/westus3/vmSizes?api-version=2024-07-01": 501,
	} {
		arms(t, azure, customerID, "GET", path, "", want, "")
	}
	arms(t, azure, customerID, "PUT", quotasPath, "{}", 501, "")
	arms(t, azure, nobodyID, "POST", "/_emulator/compute", "{}", 400, "subscription")
}
