package arm

import (
	"net/http"
	"regexp"
	"strings"
)

const groupType = "Microsoft.Resources/resourceGroups"

var groupName = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)

func groupKinds() []*kind {
	return []*kind{{
		name: groupType, versions: []string{"2021-04-01", "2022-09-01", "2024-03-01"}, tracked: true, longDelete: true,
		put:    putGroup,
		absent: groupNotFound,
	}}
}

func putGroup(c *call, old, wanted *Resource) error {
	if !groupName.MatchString(wanted.Name) {
		return badRequest("InvalidResourceGroup", "The provided resource group name '%s' has these invalid characters or is too long.", wanted.Name)
	}
	if old == nil {
		return nil
	}
	var asked Resource
	if err := decode(c.body, &asked); err != nil {
		return err
	}
	if asked.Location != "" && !strings.EqualFold(asked.Location, old.Location) {
		return &Error{Status: http.StatusConflict, Code: "InvalidResourceGroupLocation", Message: "The Resource group already exists in location '" + old.Location + "'."}
	}
	if !strings.EqualFold(asked.ManagedBy, old.ManagedBy) {
		return &Error{Status: http.StatusConflict, Code: "ResourceGroupManagedByMismatch", Message: "The property 'managedBy' of a resource group cannot be changed."}
	}
	return nil
}
