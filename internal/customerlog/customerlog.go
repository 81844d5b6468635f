// Package customerlog defines the logs of hosted control planes that a customer can have delivered to a storage account: their
// categories, the diagnostic settings that select them, and the records and blobs in which they arrive.
//
// Names and formats are those of the resource logs of Azure Monitor. The provider of diagnostic settings validates a setting with
// SettingProperties.Validate, and the log forwarder reads it with the same type. The package reads and writes nothing itself.
package customerlog

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Category is a category of resource logs of the type Microsoft.RedHatOpenShift/hcpOpenShiftClusters.
type Category string

// The categories of the published service. It had the first nine until May 2026.
const (
	KubeAudit              Category = "kube-audit"
	KubeAuditAdmin         Category = "kube-audit-admin"
	KubeAPIServer          Category = "kube-apiserver"
	KubeControllerManager  Category = "kube-controller-manager"
	KubeScheduler          Category = "kube-scheduler"
	CloudControllerManager Category = "cloud-controller-manager"
	CSIAzureDisk           Category = "csi-azuredisk-controller"
	CSIAzureFile           Category = "csi-azurefile-controller"
	CSISnapshot            Category = "csi-snapshot-controller"
	ClusterAutoscaler      Category = "cluster-autoscaler"
	CAPIProvider           Category = "capi-provider"
)

// Categories returns all categories.
func Categories() []Category {
	return []Category{KubeAudit, KubeAuditAdmin, KubeAPIServer, KubeControllerManager, KubeScheduler, CloudControllerManager,
		CSIAzureDisk, CSIAzureFile, CSISnapshot, ClusterAutoscaler, CAPIProvider}
}

// groups are the category groups of Azure Monitor.
var groups = map[string]func() []Category{
	"allLogs": Categories,
	"audit":   func() []Category { return []Category{KubeAudit, KubeAuditAdmin} },
}

// Container returns the name of the container of a storage account for the category.
func (c Category) Container() string { return "insights-logs-" + string(c) }

// operationName returns the operation of the category's records.
func (c Category) operationName() string {
	if c == KubeAudit || c == KubeAuditAdmin {
		return "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/kube-apiserver/audit"
	}
	return "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + string(c)
}

// BlobName returns the name of the append blob of a resource for the hour in which records arrive.
func BlobName(resourceID string, at time.Time) string {
	return fmt.Sprintf("resourceId=%s/%s/m=00/PT1H.json", strings.ToUpper(resourceID), at.UTC().Format("y=2006/m=01/d=02/h=15"))
}

// Record describes the origin of records.
type Record struct {
	Category Category
	// ResourceID is the ARM resource ID of the cluster, and Location its region.
	ResourceID, Location string
}

// Encode returns the line, with its newline, in which a line of a log arrives.
func (r Record) Encode(at time.Time, raw []byte) []byte {
	line, err := json.Marshal(struct {
		Time          string            `json:"time"`
		ResourceID    string            `json:"resourceId"`
		Location      string            `json:"location"`
		OperationName string            `json:"operationName"`
		Category      Category          `json:"category"`
		Level         string            `json:"level"`
		Properties    map[string]string `json:"properties"`
	}{at.UTC().Format("2006-01-02T15:04:05.0000000Z"), strings.ToUpper(r.ResourceID), r.Location, r.Category.operationName(), r.Category, "Informational",
		map[string]string{"raw": validText(raw)}})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return append(line, '\n')
}

// validText replaces invalid UTF-8, which JSON cannot represent.
func validText(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// Setting is a diagnostic setting (Microsoft.Insights/diagnosticSettings) of a cluster.
type Setting struct {
	Name       string            `json:"name"`
	Properties SettingProperties `json:"properties"`
}

// SettingProperties are the properties of a diagnostic setting that select logs and their destination.
type SettingProperties struct {
	// StorageAccountID is the ARM resource ID of the storage account that gets the logs.
	StorageAccountID string `json:"storageAccountId,omitempty"`
	// The other destinations that Azure Monitor has.
	WorkspaceID          string `json:"workspaceId,omitempty"`
	EventHubRuleID       string `json:"eventHubAuthorizationRuleId,omitempty"`
	MarketplacePartnerID string `json:"marketplacePartnerId,omitempty"`

	Logs    []LogSelection    `json:"logs,omitempty"`
	Metrics []MetricSelection `json:"metrics,omitempty"`
}

// LogSelection enables or disables a category or a group of categories.
type LogSelection struct {
	Category      string `json:"category,omitempty"`
	CategoryGroup string `json:"categoryGroup,omitempty"`
	Enabled       bool   `json:"enabled"`
}

// MetricSelection enables or disables a category of metrics. Clusters have none.
type MetricSelection struct {
	Category string `json:"category,omitempty"`
	Enabled  bool   `json:"enabled"`
}

// InvalidError is the error for an invalid field of a setting.
type InvalidError struct {
	// Field is the path of the field, for example properties.logs[0].category.
	Field, Message string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

var accountID = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/([a-z0-9]{3,24})$`)

// Account returns the name of the storage account, or "" if there is none or if its ID is invalid.
func (p *SettingProperties) Account() string {
	match := accountID.FindStringSubmatch(p.StorageAccountID)
	if match == nil {
		return ""
	}
	return strings.ToLower(match[1])
}

// Validate returns an *InvalidError for the first invalid field.
func (p *SettingProperties) Validate() error {
	switch {
	case p.StorageAccountID != "" && p.Account() == "":
		return &InvalidError{"properties.storageAccountId", fmt.Sprintf("%q is not the resource ID of a storage account", p.StorageAccountID)}
	case p.StorageAccountID == "" && p.WorkspaceID == "" && p.EventHubRuleID == "" && p.MarketplacePartnerID == "":
		return &InvalidError{"properties", "a destination is required, for example storageAccountId"}
	case len(p.Logs) == 0 && len(p.Metrics) == 0:
		return &InvalidError{"properties.logs", "at least one category is required"}
	}
	for i, l := range p.Logs {
		field := fmt.Sprintf("properties.logs[%d].", i)
		switch {
		case (l.Category == "") == (l.CategoryGroup == ""):
			return &InvalidError{field + "category", "exactly one of category and categoryGroup is required"}
		case l.Category != "" && !slices.Contains(Categories(), Category(l.Category)):
			return &InvalidError{field + "category", fmt.Sprintf("%q is not a category of this resource type; the categories are %s", l.Category, join(Categories()))}
		case l.CategoryGroup != "" && groups[l.CategoryGroup] == nil:
			return &InvalidError{field + "categoryGroup", fmt.Sprintf("%q is not a category group; the groups are allLogs, audit", l.CategoryGroup)}
		}
	}
	for i, m := range p.Metrics {
		if m.Enabled {
			return &InvalidError{fmt.Sprintf("properties.metrics[%d].category", i), fmt.Sprintf("%q is not supported: this resource type has no metrics in Azure Monitor", m.Category)}
		}
	}
	return nil
}

func join(all []Category) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// Enabled returns the enabled categories in the order of Categories. Unknown categories and groups enable nothing.
func (p *SettingProperties) Enabled() []Category {
	enabled := map[Category]bool{}
	for _, l := range p.Logs {
		switch group := groups[l.CategoryGroup]; {
		case !l.Enabled:
		case group != nil:
			for _, c := range group() {
				enabled[c] = true
			}
		default:
			enabled[Category(l.Category)] = true
		}
	}
	return slices.DeleteFunc(Categories(), func(c Category) bool { return !enabled[c] })
}
