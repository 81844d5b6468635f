package httpcase

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// waitTerminal waits until every resource of a case's subscription is in a terminal provisioning state.
func (t Target) waitTerminal(ctx context.Context, variables map[string]string) error {
	deadline := time.Now().Add(t.timeout())
	for {
		active, err := t.activeResource(ctx, variables["provider"]+"/hcpOpenShiftClusters")
		if err != nil || active == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for terminal states: %s", active)
		}
		if err := backoff.Sleep(ctx, 5*t.retryInterval()); err != nil {
			return err
		}
	}
}

// activeResource returns the first resource of a list, or below one of its items, that is not terminal, with its state. It
// is empty if there is none, and if the list is refused: then the subscription's state allows no operation.
func (t Target) activeResource(ctx context.Context, list string) (string, error) {
	for next := list + "?api-version=" + t.APIVersion; ; {
		var page resourcePage
		if err := t.read(ctx, next, &page); err != nil {
			return "", fmt.Errorf("reading the list %s: %w", list, err)
		}
		if active, err := t.activeOfPage(ctx, page); active != "" || err != nil {
			return active, err
		}
		if page.NextLink == "" {
			return "", nil
		}
		link, err := url.Parse(page.NextLink)
		if err != nil {
			return "", fmt.Errorf("the next link of the list %s: %w", list, err)
		}
		// The link is absolute and may name another host than the target.
		next = link.RequestURI()
	}
}

// resourcePage is one page of a list.
type resourcePage struct {
	Value []struct {
		ID, Type   string
		Properties struct{ ProvisioningState string }
	}
	NextLink string
}

// read reads one page of a list, which stays empty if the list is refused.
func (t Target) read(ctx context.Context, target string, page *resourcePage) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.BaseURL+target, nil)
	if err != nil {
		return err
	}
	response, err := t.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(page)
}

// activeOfPage is activeResource for the items of one page.
func (t Target) activeOfPage(ctx context.Context, page resourcePage) (string, error) {
	for _, item := range page.Value {
		switch state := item.Properties.ProvisioningState; state {
		case "Failed":
			return "", fmt.Errorf("%s is Failed", item.ID)
		case "Succeeded", "Canceled", "AwaitingSecret":
		default:
			return item.ID + " is " + state, nil
		}
		if item.Type != clusterType {
			continue
		}
		for _, children := range []string{"/nodePools", "/externalAuths"} {
			if active, err := t.activeResource(ctx, item.ID+children); active != "" || err != nil {
				return active, err
			}
		}
	}
	return "", nil
}

const clusterType = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"

func (t Target) timeout() time.Duration {
	if t.Timeout > 0 {
		return t.Timeout
	}
	return defaultTimeout
}

func (t Target) retryInterval() time.Duration {
	if t.RetryInterval > 0 {
		return t.RetryInterval
	}
	return defaultRetryInterval
}
