package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// frontendClient calls the frontend as the ARM front door does, with ARM's token.
type frontendClient struct {
	url, identityDir, subscription, location string
	identity                                 *mesh.Identity
	tokens                                   tokenSource
	ports                                    usedPorts
}

func (c *frontendClient) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&c.url, "url", "", "URL of the frontend")
	flags.StringVar(&c.identityDir, "identity", "", "identity folder of the ARM front door")
	flags.StringVar(&c.subscription, "subscription", "", "ID of a registered subscription")
	flags.StringVar(&c.location, "location", "", "location of the region")
	c.tokens.addFlags(flags)
}

func (c *frontendClient) calls() (map[string]call, error) {
	var err error
	if c.identity, err = mesh.LoadIdentity(c.identityDir); err != nil {
		return nil, err
	}
	roots, err := readRoots(filepath.Join(c.identityDir, mesh.CAFile))
	if err != nil {
		return nil, err
	}
	if err := c.tokens.open(roots); err != nil {
		return nil, err
	}
	all, config := map[string]call{}, func() *tls.Config { return c.identity.ClientTLS(mesh.Frontend) }
	maps.Copy(all, bothWays("operations", &c.ports, config, func() httpCall { return c.operations }))
	maps.Copy(all, bothWays("clusters", &c.ports, config, func() httpCall { return c.clusters }))
	maps.Copy(all, bothWays("versions", &c.ports, config, func() httpCall { return c.versions }))
	maps.Copy(all, bothWays("register", &c.ports, config, c.newRegister))
	return all, nil
}

// apiVersion is the api-version of the provider's paths, and subscriptionAPIVersion that of subscriptions.
const apiVersion, subscriptionAPIVersion = "2026-09-01-preview", "2.0"

// send sends a request with ARM's token.
func (c *frontendClient) send(ctx context.Context, on *http.Client, method, path string, body []byte) ([]byte, error) {
	header, err := c.tokens.header(ctx)
	if err != nil {
		return nil, err
	}
	return request(ctx, on, method, c.url+path, header, body, http.StatusOK)
}

// operations reads the operations of the provider, which need no store.
func (c *frontendClient) operations(ctx context.Context, on *http.Client) error {
	_, err := c.send(ctx, on, http.MethodGet, "/providers/Microsoft.RedHatOpenShift/operations?api-version="+apiVersion, nil)
	return err
}

// clusters lists the clusters of the subscription.
func (c *frontendClient) clusters(ctx context.Context, on *http.Client) error {
	_, err := c.send(ctx, on, http.MethodGet, "/subscriptions/"+c.subscription+"/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters?api-version="+apiVersion, nil)
	return err
}

// versions lists the versions of new clusters, which the frontend requests from Cluster Service.
func (c *frontendClient) versions(ctx context.Context, on *http.Client) error {
	_, err := c.send(ctx, on, http.MethodGet, "/subscriptions/"+c.subscription+"/providers/Microsoft.RedHatOpenShift/locations/"+c.location+"/hcpOpenShiftVersions?api-version="+apiVersion, nil)
	return err
}

// newRegister returns a call that changes the registration date of a subscription of its own. It fails if a read does not return the change.
func (c *frontendClient) newRegister() httpCall {
	path, changes := "/subscriptions/"+uuid.NewString()+"?api-version="+subscriptionAPIVersion, int64(0)
	return func(ctx context.Context, on *http.Client) error {
		changes++
		date := time.Unix(changes, 0).UTC().Format(time.RFC1123)
		body, err := json.Marshal(map[string]any{"state": "Registered", "registrationDate": date, "properties": map[string]string{"tenantId": c.tokens.tenant}})
		if err != nil {
			return err
		}
		if _, err := c.send(ctx, on, http.MethodPut, path, body); err != nil {
			return err
		}
		text, err := c.send(ctx, on, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		var stored struct{ RegistrationDate string }
		if err := json.Unmarshal(text, &stored); err != nil {
			return err
		}
		if stored.RegistrationDate != date {
			return fmt.Errorf("the subscription has the registration date %q, want %q", stored.RegistrationDate, date)
		}
		return nil
	}
}
