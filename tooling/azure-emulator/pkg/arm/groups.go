package arm

import (
	"net/http"
	"regexp"
	"strings"
)

const groupType = "Microsoft.Resources/resourceGroups"

var groupNamePattern = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)

// groupTypes returns the type of resource groups.
func groupTypes() []*resourceType {
	return []*resourceType{{
		name: groupType, versions: []string{"2021-04-01", "2022-09-01", "2024-03-01"}, tracked: true, longDelete: true,
		put:      putGroup,
		notFound: groupNotFound,
	}}
}

// putGroup validates a resource group. Its location and managedBy are immutable.
func putGroup(c *call, old, wanted *Resource) error {
	if !groupNamePattern.MatchString(wanted.Name) {
		return badRequest("InvalidResourceGroup", "The provided resource group name '%s' has invalid characters or is too long.", wanted.Name)
	}
	if old == nil {
		return nil
	}
	var requested Resource
	if err := decode(c.body, &requested); err != nil {
		return err
	}
	if requested.Location != "" && !strings.EqualFold(requested.Location, old.Location) {
		return &Error{Status: http.StatusConflict, Code: "InvalidResourceGroupLocation", Message: "The Resource group already exists in location '" + old.Location + "'."}
	}
	if !strings.EqualFold(requested.ManagedBy, old.ManagedBy) {
		return &Error{Status: http.StatusConflict, Code: "ResourceGroupManagedByMismatch", Message: "The property 'managedBy' of a resource group cannot be changed."}
	}
	return nil
}
