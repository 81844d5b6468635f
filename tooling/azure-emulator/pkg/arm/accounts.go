package arm

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	storageType      = "Microsoft.Storage/storageAccounts"
	containerType    = storageType + "/blobServices/containers"
	immutabilityType = containerType + "/immutabilityPolicies"
	// accounts is the bucket that maps the name of a storage account to its ID.
	accounts = "storage-accounts"
)

// StorageAccount returns the resource ID of the storage account with a name. found is false if it does not exist.
func (s *Server) StorageAccount(name string) (id string, found bool, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if found, err = tx.Get(accounts, strings.ToLower(name), &id); err != nil || !found {
			return err
		}
		found, err = tx.Get(resources, strings.ToLower(id), &Resource{})
		return err
	})
	return id, found, err
}

// createAccount makes a new storage account known to Blob Storage, without the data that a write after the deletion of an account of the same
// name left.
func (c *call) createAccount(wanted *Resource) error {
	name := strings.ToLower(wanted.Name)
	if err := blob.DeleteAccount(c.tx, name); err != nil {
		return err
	}
	return c.tx.Put(accounts, name, wanted.ID)
}

// deleteAccount deletes the data of a storage account that was deleted, given the key of a deleted resource. It does nothing for other resources.
func (c *call) deleteAccount(key string) error {
	name := key[strings.LastIndexByte(key, '/')+1:]
	var id string
	found, err := c.tx.Get(accounts, name, &id)
	if err != nil || !found || !strings.EqualFold(id, key) {
		return err
	}
	if err := c.tx.Delete(accounts, name); err != nil {
		return err
	}
	return blob.DeleteAccount(c.tx, name)
}

// writeStorage makes a new account, a container or an immutability policy known to Blob Storage. It does nothing for resources of other types.
func (c *call) writeStorage(k *resourceType, old, wanted *Resource) error {
	switch k.name {
	case storageType:
		if old == nil {
			return c.createAccount(wanted)
		}
	case containerType:
		access, _ := wanted.Properties["publicAccess"].(string)
		if strings.EqualFold(access, "None") {
			access = ""
		}
		return blob.WriteContainer(c.tx, strings.ToLower(c.path.names[0]), wanted.Name, strings.ToLower(access), c.Now())
	case immutabilityType:
		days, _ := wanted.Properties["immutabilityPeriodSinceCreationInDays"].(float64)
		appends, _ := wanted.Properties["allowProtectedAppendWrites"].(bool)
		return blob.WriteImmutability(c.tx, strings.ToLower(c.path.names[0]), c.path.names[2], &blob.Immutability{Days: int(days), ProtectedAppends: appends})
	}
	return nil
}

// deleteStorage deletes what Blob Storage has of a deleted resource, given its key: an account, a container or an immutability policy. It does
// nothing for other resources.
func (c *call) deleteStorage(key string) error {
	p, err := parsePath(key)
	if err != nil || len(p.names) == 0 {
		return err
	}
	switch {
	case strings.EqualFold(p.typ, containerType):
		return blob.DeleteContainer(c.tx, p.names[0], p.names[2])
	case strings.EqualFold(p.typ, immutabilityType):
		return blob.WriteImmutability(c.tx, p.names[0], p.names[2], nil)
	}
	return c.deleteAccount(key)
}
