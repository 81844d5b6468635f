package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// adminClient calls admin as an engineer with the role operator does.
type adminClient struct {
	url, caFile string
	tokens      tokenSource
	ports       usedPorts
}

func (c *adminClient) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&c.url, "url", "", "URL of admin")
	flags.StringVar(&c.caFile, "ca-file", "", "file with the authorities of the region")
	c.tokens.addFlags(flags)
}

func (c *adminClient) calls() (map[string]call, error) {
	roots, err := readRoots(c.caFile)
	if err != nil {
		return nil, err
	}
	if err := c.tokens.open(roots); err != nil {
		return nil, err
	}
	all, config := map[string]call{}, func() *tls.Config { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12} }
	get := func(path string) func() httpCall {
		return func() httpCall {
			return func(ctx context.Context, on *http.Client) error {
				_, err := c.send(ctx, on, http.MethodGet, path, nil, http.StatusOK)
				return err
			}
		}
	}
	// The keys of intents need no other service, the shards need Cluster Service, and elevations the store.
	maps.Copy(all, bothWays("keys", &c.ports, config, get(adminv1.IntentKeysPath)))
	maps.Copy(all, bothWays("shards", &c.ports, config, get("/admin/v1/shards")))
	maps.Copy(all, bothWays("elevate", &c.ports, config, func() httpCall { return c.elevate }))
	return all, nil
}

// send sends a request with the engineer's token.
func (c *adminClient) send(ctx context.Context, on *http.Client, method, path string, body []byte, want int) ([]byte, error) {
	header, err := c.tokens.header(ctx)
	if err != nil {
		return nil, err
	}
	return request(ctx, on, method, c.url+path, header, body, want)
}

// elevate requests an elevation, which is active at once, and ends it.
func (c *adminClient) elevate(ctx context.Context, on *http.Client) error {
	body, err := json.Marshal(adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "constant load", Ticket: "INC-1", Duration: "5m"})
	if err != nil {
		return err
	}
	text, err := c.send(ctx, on, http.MethodPost, "/admin/v1/elevations", body, http.StatusCreated)
	if err != nil {
		return err
	}
	var created adminv1.Elevation
	if err := json.Unmarshal(text, &created); err != nil {
		return err
	}
	if !created.Active {
		return fmt.Errorf("the elevation is %s", created.State)
	}
	if text, err = c.send(ctx, on, http.MethodDelete, "/admin/v1/elevations/"+created.ID, nil, http.StatusOK); err != nil {
		return err
	}
	var ended adminv1.Elevation
	if err := json.Unmarshal(text, &ended); err != nil {
		return err
	}
	if ended.State != adminv1.ElevationEnded {
		return fmt.Errorf("the elevation that was ended is %s", ended.State)
	}
	return nil
}
