package arm

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// keyType is the type of a key of a vault. Resource Manager creates its first version.
const keyType = "Microsoft.KeyVault/vaults/keys"

// keyActions is the prefix of the actions on the keys of a vault.
const keyActions = keyType + "/"

// keyManagement is the part of a cluster with the key of its etcd.
const keyManagement = "securityProfile.azureKeyVaultKms"

// vaultKey returns the identifiers of a key and of its version.
func vaultKey(r *Resource) map[string]any {
	uri := "https://" + strings.ToLower(strings.Split(r.ID, "/")[8]) + VaultSuffix + "/keys/" + r.Name
	return map[string]any{"keyUri": uri, "keyUriWithVersion": uri + "/" + strings.ReplaceAll(stable(r, "version"), "-", "")}
}

// checkEtcdKey returns an error if AKS could not use the key of a cluster's etcd: it must be a version of a key of a vault, and an identity of
// the cluster needs a role with which it encrypts and decrypts.
func checkEtcdKey(c *call, cluster *Resource) error {
	if enabled, _ := valueAt(cluster.Properties, keyManagement+".enabled").(bool); !enabled {
		return nil
	}
	if access, _ := valueAt(cluster.Properties, keyManagement+".keyVaultNetworkAccess").(string); access != "Public" {
		return notImplemented("The access '%s' to the vault of the key of etcd is not emulated.", access)
	}
	id, _ := valueAt(cluster.Properties, keyManagement+".keyId").(string)
	all, err := store.All[Resource](c.tx, resources, "")
	if err != nil {
		return err
	}
	for _, key := range all {
		if uri, _ := key.Properties["keyUriWithVersion"].(string); typeKeyOf(key) == strings.ToLower(keyType) && uri == id {
			return c.checkEtcdRole(cluster, key)
		}
	}
	return badRequest("BadRequest", "The version '%s' of a key for etcd was not found in a vault.", id)
}

// checkEtcdRole returns an error unless an identity of the cluster may encrypt and decrypt with a key.
func (c *call) checkEtcdRole(cluster, key *Resource) error {
	var denied error
	if cluster.Identity == nil {
		return badRequest("BadRequest", "The cluster '%s' needs a user-assigned identity for the key of etcd.", cluster.Name)
	}
	for _, user := range cluster.Identity.Users {
		as := *c
		as.ctx = rbac.NewContext(c.ctx, rbac.Caller{ObjectID: fmt.Sprint(user["principalId"])})
		denied = nil
		for _, action := range []string{"encrypt", "decrypt"} {
			if denied == nil {
				denied = as.authorize(rbac.Action{Name: keyActions + action + "/action", Data: true}, key.ID)
			}
		}
		if denied == nil {
			return nil
		}
	}
	return badRequest("BadRequest", "No identity of the cluster '%s' may encrypt and decrypt with the key '%s': %v", cluster.Name, key.ID, denied)
}
