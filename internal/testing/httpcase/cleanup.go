package httpcase

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// settled waits until no resource in a case's subscription is moving.
func (t Target) settled(ctx context.Context, variables map[string]string, mayFail bool) error {
	deadline := time.Now().Add(t.patience())
	for {
		moving, err := t.moving(ctx, variables["provider"]+"/hcpOpenShiftClusters", mayFail)
		if err != nil || moving == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("what was accepted came to no end: %s", moving)
		}
		timer := time.NewTimer(5 * t.pause())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// moving says which resource of a list, or below one of its items, is not terminal; empty when none is. A subscription
// whose lists are refused has nothing that could move on.
func (t Target) moving(ctx context.Context, list string, mayFail bool) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.BaseURL+list+"?api-version="+t.APIVersion, nil)
	if err != nil {
		return "", err
	}
	response, err := t.Client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", nil
	}
	var page struct {
		Value []struct {
			ID, Type   string
			Properties struct{ ProvisioningState string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return "", fmt.Errorf("reading the list %s: %w", list, err)
	}
	for _, item := range page.Value {
		switch state := item.Properties.ProvisioningState; state {
		case "Failed":
			if !mayFail {
				return "", fmt.Errorf("what was accepted has failed: %s", item.ID)
			}
		case "Succeeded", "Canceled", "AwaitingSecret":
		default:
			return item.ID + " is " + state, nil
		}
		if item.Type != clusterType {
			continue
		}
		for _, children := range []string{"/nodePools", "/externalAuths"} {
			if moving, err := t.moving(ctx, item.ID+children, mayFail); moving != "" || err != nil {
				return moving, err
			}
		}
	}
	return "", nil
}

const clusterType = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"

func (t Target) patience() time.Duration {
	if t.Timeout > 0 {
		return t.Timeout
	}
	return patience
}

func (t Target) pause() time.Duration {
	if t.RetryInterval > 0 {
		return t.RetryInterval
	}
	return pause
}
