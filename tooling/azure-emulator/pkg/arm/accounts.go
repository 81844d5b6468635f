package arm

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	storageType = "Microsoft.Storage/storageAccounts"
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
