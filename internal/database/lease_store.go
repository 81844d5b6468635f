package database

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// cosmosLeases stores leases in the container Leases. It does not search for the outcome of a write whose response was
// lost: the ETag is then unknown, a repeated write fails, and the next list returns the current owner.
type cosmosLeases struct{ db *DB }

func (s cosmosLeases) list(ctx context.Context, group string) ([]leaseDocument, error) {
	var documents []leaseDocument
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := s.db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			page, err = client.leases.NewQueryItemsPager("SELECT * FROM c", azcosmos.NewPartitionKeyString(group), &azcosmos.QueryOptions{
				ContinuationToken: continuation,
			}).NextPage(ctx)
			return err
		})
		if err != nil {
			return nil, failure(err, "listing the leases of %s", group)
		}
		for _, item := range page.Items {
			var d leaseDocument
			if err := json.Unmarshal(item, &d); err != nil {
				return nil, fmt.Errorf("decoding a lease of %s: %w", group, err)
			}
			documents = append(documents, d)
		}
		if page.ContinuationToken == nil || *page.ContinuationToken == "" {
			return documents, nil
		}
		continuation = page.ContinuationToken
	}
}

func (s cosmosLeases) write(ctx context.Context, d leaseDocument) (string, error) {
	condition := azcore.ETag(d.ETag)
	d.ETag = ""
	body, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	var written azcosmos.ItemResponse
	err = s.db.connection.do(ctx, func(ctx context.Context, client *client) error {
		partition := azcosmos.NewPartitionKeyString(d.Group)
		var err error
		if condition == "" {
			written, err = client.leases.CreateItem(ctx, partition, body, nil)
			return err
		}
		written, err = client.leases.ReplaceItem(ctx, partition, d.ID, body, &azcosmos.ItemOptions{IfMatchEtag: &condition})
		return err
	})
	switch statusOf(err) {
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound:
		return "", errLeaseConflict
	}
	if err != nil {
		return "", failure(err, "writing the lease %s", d.ID)
	}
	return string(written.ETag), nil
}
