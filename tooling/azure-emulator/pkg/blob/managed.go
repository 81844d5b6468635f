package blob

import (
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// WriteContainer creates a container of Resource Manager in a transaction, or changes its public access: empty, blob or container. Its blobs and its
// immutability policy stay.
func WriteContainer(tx *store.Tx, account, name, access string, now time.Time) error {
	return writeContainer(tx, &container{}, account, name, access, now)
}

// writeContainer creates a container or replaces its access, and keeps its immutability policy. It returns the container in c.
func writeContainer(tx *store.Tx, c *container, account, name, access string, now time.Time) error {
	if _, err := tx.Get(containers, account+"/"+name, c); err != nil {
		return err
	}
	c.Name, c.Access, c.ETag, c.Modified = name, access, etagAt(now), now
	return tx.Put(containers, account+"/"+name, c)
}

// WriteImmutability sets the immutability policy of a container of Resource Manager in a transaction; nil removes it. It does nothing for a container
// that does not exist.
func WriteImmutability(tx *store.Tx, account, name string, policy *Immutability) error {
	c := &container{}
	found, err := tx.Get(containers, account+"/"+name, c)
	if err != nil || !found {
		return err
	}
	c.Immutability = policy
	return tx.Put(containers, account+"/"+name, c)
}

// DeleteContainer deletes a container with its blobs in a transaction.
func DeleteContainer(tx *store.Tx, account, name string) error {
	if err := tx.Delete(containers, account+"/"+name); err != nil {
		return err
	}
	if err := deleteKeys(tx, blobs, account+"/"+name+"/"); err != nil {
		return err
	}
	return deleteBlocks(tx, account+"/"+name+"/")
}
