package arm

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/blob"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	storageType = "Microsoft.Storage/storageAccounts"
	// accounts is the bucket that maps the name of a storage account to its ID. It may have names of deleted accounts.
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

// createAccount makes a new storage account known to Blob Storage, without the data of a deleted account of the same name.
func (c *call) createAccount(wanted *Resource) error {
	name := strings.ToLower(wanted.Name)
	if err := blob.DeleteAccount(c.tx, name); err != nil {
		return err
	}
	return c.tx.Put(accounts, name, wanted.ID)
}
