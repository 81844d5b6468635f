package customer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

// IsStatus reports whether err is a response of ARM with the given HTTP status.
func IsStatus(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

// Ensure creates or replaces a resource and retries until its state is Succeeded. A connection may break after ARM has accepted
// the request; Ensure then finds the resource in progress or complete. It returns an error for status 400 and for a
// resource that is Failed or Canceled.
func (c *Customer) Ensure(ctx context.Context, id string, body armresources.GenericResource) error {
	for {
		_, err := c.Put(ctx, id, body)
		if err == nil {
			return nil
		}
		if IsStatus(err, http.StatusBadRequest) {
			return err
		}
		state, getErr := c.AwaitTerminal(ctx, id)
		if getErr != nil {
			return fmt.Errorf("after %w: %w", err, getErr)
		}
		switch state {
		case "Succeeded":
			return nil
		case "Failed", "Canceled":
			return fmt.Errorf("terminal state %s after %w", state, err)
		}
	}
}

// EnsureGone deletes a resource and retries until it no longer exists.
func (c *Customer) EnsureGone(ctx context.Context, id string) error {
	for {
		err := c.Delete(ctx, id)
		if err == nil {
			return nil
		}
		state, getErr := c.AwaitTerminal(ctx, id)
		if getErr != nil {
			return fmt.Errorf("after %w: %w", err, getErr)
		}
		if state == "" {
			return nil
		}
	}
}

// AwaitTerminal waits until no operation is in progress for a resource. It returns the provisioning state, or an empty string if
// the resource does not exist.
func (c *Customer) AwaitTerminal(ctx context.Context, id string) (string, error) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := c.Resources.GetByID(ctx, id, APIVersion, nil)
		if IsStatus(err, http.StatusNotFound) {
			return "", nil
		}
		if err == nil {
			properties, _ := got.Properties.(map[string]any)
			switch state, _ := properties["provisioningState"].(string); state {
			case "Succeeded", "Failed", "Canceled":
				return state, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-ticker.C:
		}
	}
}
