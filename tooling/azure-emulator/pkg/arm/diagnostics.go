package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	diagnosticType = "Microsoft.Insights/diagnosticSettings"
	// clusterType is the type of the resources that can have diagnostic settings. They belong to the resource provider, and the emulator
	// does not know which of them exist.
	clusterType = "microsoft.redhatopenshift/hcpopenshiftclusters"
	// aksType is the type of the clusters of a region.
	aksType = "Microsoft.ContainerService/managedClusters"
	// maxDiagnosticSettings is the number of settings of one resource that Azure Monitor permits.
	maxDiagnosticSettings = 5
)

// diagnosticTypes returns the types of Microsoft.Insights.
func diagnosticTypes() []*resourceType {
	return []*resourceType{{name: diagnosticType, versions: []string{"2021-05-01-preview"}, put: putDiagnosticSetting, notFound: func(p *path) *Error {
		return &Error{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: fmt.Sprintf("The diagnostic setting '%s' of the resource '%s' was not found.", p.name, p.scope)}
	}}}
}

// aksCategories returns the categories of resource logs of AKS clusters.
func aksCategories() []string {
	return []string{"cloud-controller-manager", "cluster-autoscaler", "csi-azuredisk-controller", "csi-azurefile-controller", "csi-snapshot-controller", "guard",
		"kube-apiserver", "kube-audit", "kube-audit-admin", "kube-controller-manager", "kube-scheduler"}
}

// putDiagnosticSetting validates a diagnostic setting of a cluster. Its storage account must exist, and the caller must be permitted to read
// the keys of the account, so that nobody makes Azure Monitor write to the account of somebody else.
func putDiagnosticSetting(c *call, old, wanted *Resource) error {
	scope, err := parsePath(c.path.scope)
	if err != nil {
		return err
	}
	aks := scope.lowerType == strings.ToLower(aksType)
	if !aks && scope.lowerType != clusterType || scope.name == "" {
		return notImplemented("Diagnostic settings of '%s' are not emulated.", c.path.scope)
	}
	wanted.Location, wanted.Tags = "", nil
	text, err := json.Marshal(wanted.Properties)
	if err != nil {
		return err
	}
	var properties customerlog.SettingProperties
	if err := decode(text, &properties); err != nil {
		return err
	}
	if aks {
		err = c.checkAKSSetting(scope.id, &properties)
	} else {
		err = checkClusterSetting(&properties)
	}
	if err != nil {
		return err
	}
	if properties.StorageAccountID != "" {
		if err := c.checkLogAccount(properties.StorageAccountID); err != nil {
			return err
		}
	}
	others, err := store.All[Resource](c.tx, resources, strings.ToLower(c.path.scope+"/providers/"+diagnosticType)+"/")
	if err != nil {
		return err
	}
	if old == nil && len(others) >= maxDiagnosticSettings {
		return &Error{Status: http.StatusConflict, Code: "Conflict", Message: fmt.Sprintf("The resource has %d diagnostic settings, which is the maximum.", len(others))}
	}
	return checkDuplicateDestination(others, wanted, &properties)
}

// checkClusterSetting returns an error for a setting of a hosted cluster that the resource provider refuses.
func checkClusterSetting(properties *customerlog.SettingProperties) error {
	var invalid *customerlog.InvalidError
	if errors.As(properties.Validate(), &invalid) {
		return badRequest("BadRequest", "The diagnostic setting is invalid: %s", invalid.Error())
	}
	return nil
}

// checkAKSSetting returns an error for a setting of an AKS cluster that Azure Monitor refuses, or that would deliver nothing because of the
// firewall of the storage account. Azure accepts the latter; the emulator refuses it, because it delivers no logs that a test could miss.
func (c *call) checkAKSSetting(cluster string, properties *customerlog.SettingProperties) error {
	r, err := c.find(cluster)
	if err != nil {
		return err
	}
	if r == nil {
		return &Error{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: fmt.Sprintf("The cluster '%s' was not found.", cluster)}
	}
	if properties.Account() == "" || len(properties.Logs) == 0 {
		return badRequest("BadRequest", "The diagnostic setting needs a storage account and at least one category of logs. Other destinations are not emulated.")
	}
	for _, l := range properties.Logs {
		if !slices.Contains(aksCategories(), l.Category) {
			return badRequest("BadRequest", "Category '%s' is not supported. The categories are %s.", l.Category, strings.Join(aksCategories(), ", "))
		}
	}
	account, err := c.find(properties.StorageAccountID)
	if err != nil || account == nil {
		return err // checkLogAccount reports an account that does not exist, after it has checked the caller
	}
	if account.Location != r.Location {
		return badRequest("BadRequest", "Resource '%s' is in region '%s' and resource '%s' is in region '%s'. Storage accounts must be in the region of the resource.", cluster, r.Location, account.ID, account.Location)
	}
	access, _ := account.Properties["publicNetworkAccess"].(string)
	action, _ := valueAt(account.Properties, "networkAcls.defaultAction").(string)
	bypass, _ := valueAt(account.Properties, "networkAcls.bypass").(string)
	if access == "Disabled" || action == "Deny" && !strings.Contains(bypass, "AzureServices") {
		return badRequest("BadRequest", "The firewall of the account '%s' does not admit trusted services of Microsoft, so that no log would arrive.", account.ID)
	}
	return nil
}

// checkLogAccount returns an error unless the account exists and the caller may read its keys.
func (c *call) checkLogAccount(id string) error {
	action := rbac.Action{Name: storageType + "/listKeys/action"}
	err := c.authorize(action, id)
	var denied *rbac.Denied
	if errors.As(err, &denied) {
		return &Error{Status: http.StatusForbidden, Code: "LinkedAuthorizationFailed", Message: fmt.Sprintf(
			"The client has permission to write the diagnostic setting, but not to perform action '%s' on the linked scope '%s'.", action.Name, id)}
	}
	if err != nil {
		return err
	}
	account, err := c.find(id)
	if err == nil && account == nil {
		err = badRequest("ResourceNotFound", "The storage account '%s' was not found.", id)
	}
	return err
}

// checkDuplicateDestination returns an error if another setting delivers one of the categories to the same account.
func checkDuplicateDestination(others []*Resource, wanted *Resource, properties *customerlog.SettingProperties) error {
	for _, other := range others {
		var theirs customerlog.SettingProperties
		text, err := json.Marshal(other.Properties)
		if err == nil {
			err = json.Unmarshal(text, &theirs)
		}
		if err != nil {
			return err
		}
		if strings.EqualFold(other.ID, wanted.ID) || properties.Account() == "" || theirs.Account() != properties.Account() {
			continue
		}
		for _, category := range enabledCategories(&theirs) {
			for _, own := range enabledCategories(properties) {
				if own == category {
					return &Error{Status: http.StatusConflict, Code: "Conflict", Message: fmt.Sprintf(
						"Data sink '%s' is already used in diagnostic setting '%s' for category '%s'. Data sinks can't be reused in different settings on the same category for the same resource.", properties.StorageAccountID, other.Name, category)}
				}
			}
		}
	}
	return nil
}

// enabledCategories returns the enabled categories of a setting, with those of its groups.
func enabledCategories(properties *customerlog.SettingProperties) []string {
	var names []string
	for _, l := range properties.Logs {
		if l.Enabled && l.Category != "" {
			names = append(names, l.Category)
		}
	}
	for _, category := range properties.Enabled() {
		names = append(names, string(category))
	}
	return names
}
