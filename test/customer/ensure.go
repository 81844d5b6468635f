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

// IsStatus reports whether err is ARM's answer with an HTTP status.
func IsStatus(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

// Ensure brings a resource to Succeeded whatever happens to the requests: a customer's client may see its connection cut
// after the request was accepted, and then finds the resource moving or there.
func (c *Customer) Ensure(ctx context.Context, id string, body armresources.GenericResource) error {
	for {
		_, err := c.Put(ctx, id, body)
		if err == nil {
			return nil
		}
		if IsStatus(err, http.StatusBadRequest) {
			return err
		}
		state, getErr := c.Settled(ctx, id)
		if getErr != nil {
			return fmt.Errorf("after %w: %w", err, getErr)
		}
		switch state {
		case "Succeeded":
			return nil
		case "Failed", "Canceled":
			return fmt.Errorf("ended as %s after %w", state, err)
		}
	}
}

// EnsureGone deletes a resource, whatever happens to the requests.
func (c *Customer) EnsureGone(ctx context.Context, id string) error {
	for {
		err := c.Delete(ctx, id)
		if err == nil {
			return nil
		}
		state, getErr := c.Settled(ctx, id)
		if getErr != nil {
			return fmt.Errorf("after %w: %w", err, getErr)
		}
		if state == "" {
			return nil
		}
	}
}

// Settled waits until nothing is under way for a resource and returns its provisioning state, empty when it is not there.
func (c *Customer) Settled(ctx context.Context, id string) (string, error) {
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
