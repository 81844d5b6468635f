package arm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	// maxDiagnosticSettings is the number of settings of one resource that Azure Monitor permits.
	maxDiagnosticSettings = 5
)

// diagnosticTypes returns the types of Microsoft.Insights.
func diagnosticTypes() []*resourceType {
	return []*resourceType{{name: diagnosticType, versions: []string{"2021-05-01-preview"}, put: putDiagnosticSetting, notFound: func(p *path) *Error {
		return &Error{Status: http.StatusNotFound, Code: "ResourceNotFound", Message: fmt.Sprintf("The diagnostic setting '%s' of the resource '%s' was not found.", p.name, p.scope)}
	}}}
}

// putDiagnosticSetting validates a diagnostic setting of a cluster. Its storage account must exist, and the caller must be permitted to read
// the keys of the account, so that nobody makes Azure Monitor write to the account of somebody else.
func putDiagnosticSetting(c *call, old, wanted *Resource) error {
	scope, err := parsePath(c.path.scope)
	if err != nil {
		return err
	}
	if scope.lowerType != clusterType || scope.name == "" {
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
	var invalid *customerlog.InvalidError
	if errors.As(properties.Validate(), &invalid) {
		return badRequest("BadRequest", "The diagnostic setting is invalid: %s", invalid.Error())
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
		for _, category := range theirs.Enabled() {
			for _, own := range properties.Enabled() {
				if own == category {
					return &Error{Status: http.StatusConflict, Code: "Conflict", Message: fmt.Sprintf(
						"Data sink '%s' is already used in diagnostic setting '%s' for category '%s'. Data sinks can't be reused in different settings on the same category for the same resource.", properties.StorageAccountID, other.Name, category)}
				}
			}
		}
	}
	return nil
}
