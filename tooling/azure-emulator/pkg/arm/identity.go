package arm

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	identityType  = "Microsoft.ManagedIdentity/userAssignedIdentities"
	federatedType = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials"
	// principals is the bucket that maps the ID of a principal to that of its identity.
	principals = "principals"
	// maxFederatedCredentials bounds the federated credentials of an identity.
	maxFederatedCredentials = 20
	// homeTenant is the tenant of all identities.
	homeTenant = "0c5b6e2c-2f6a-4c57-9d21-7a6f3c1d8e40"
)

// identityTypes returns the types of Microsoft.ManagedIdentity.
func identityTypes() []*resourceType {
	versions := []string{"2024-11-30", "2023-01-31"}
	return []*resourceType{
		{name: identityType, versions: versions, tracked: true, assumable: true, put: putIdentity},
		{name: federatedType, versions: versions, put: putFederated},
	}
}

// putIdentity assigns a principal and a client ID to a new identity.
func putIdentity(c *call, old, wanted *Resource) error {
	if old != nil {
		wanted.Properties = old.Properties
		return nil
	}
	principal := uuid.NewString()
	wanted.Properties = map[string]any{"tenantId": homeTenant, "principalId": principal, "clientId": uuid.NewString()}
	return c.tx.Put(principals, principal, wanted.ID)
}

var federatedNamePattern = regexp.MustCompile(`^[A-Za-z0-9][-_A-Za-z0-9]{2,119}$`)

// putFederated validates a federated credential.
func putFederated(c *call, _, wanted *Resource) error {
	identity, err := c.find(c.path.parentID())
	if err == nil && identity == nil && c.assumes() {
		identity, err = c.assumeID(c.path.parentID(), identityType)
	}
	if err != nil {
		return err
	}
	if identity == nil {
		return parentNotFound(c.path, "userAssignedIdentities/"+c.path.names[0])
	}
	issuer, _ := wanted.Properties["issuer"].(string)
	subject, _ := wanted.Properties["subject"].(string)
	audiences, _ := wanted.Properties["audiences"].([]any)
	switch {
	case !federatedNamePattern.MatchString(wanted.Name):
		return badRequest("BadRequest", "The name '%s' of a federated identity credential is not valid.", wanted.Name)
	case !strings.HasPrefix(issuer, "https://"):
		return badRequest("BadRequest", "The issuer '%s' of a federated identity credential is not an https URL.", issuer)
	case subject == "" || len(subject) > 600:
		return badRequest("BadRequest", "The subject of a federated identity credential has 1 to 600 characters.")
	case len(audiences) != 1:
		return badRequest("BadRequest", "A federated identity credential has exactly one audience.")
	}
	others, err := store.All[Resource](c.tx, resources, strings.ToLower(identity.ID)+"/")
	if err != nil {
		return err
	}
	n := 0
	for _, o := range others {
		if strings.EqualFold(o.ID, wanted.ID) {
			continue
		}
		n++
		if o.Properties["issuer"] == issuer && o.Properties["subject"] == subject {
			return &Error{Status: http.StatusConflict, Code: "Conflict", Message: fmt.Sprintf(
				"Issuer and subject combination already exists for this Managed Identity, in '%s'.", o.Name)}
		}
	}
	if n >= maxFederatedCredentials {
		return &Error{Status: http.StatusConflict, Code: "Conflict", Message: fmt.Sprintf("Too many Federated Identity Credentials exist on the Managed Identity; the maximum is %d.", maxFederatedCredentials)}
	}
	wanted.Location, wanted.Tags = "", nil
	return nil
}
