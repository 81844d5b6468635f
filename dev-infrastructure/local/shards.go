package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"sigs.k8s.io/yaml"
)

// shardCapacity is the number of clusters that a management cluster can host.
const shardCapacity = 1000

// shardsFile returns the file of the provision shards for Cluster Service.
func (r *Region) shardsFile() string { return r.state.path("provision-shards.yaml") }

func (r *Region) writeShards(context.Context) error {
	type shard struct {
		Name     string   `json:"name"`
		Capacity int      `json:"capacity"`
		Zones    []string `json:"zones"`
	}
	var shards []shard
	for _, m := range r.clusters {
		shards = append(shards, shard{m.name, shardCapacity, []string{"1", "2", "3"}})
	}
	data, err := yaml.Marshal(map[string]any{"provisionShards": shards})
	if err != nil {
		return err
	}
	return replaceFile(r.shardsFile(), data, 0o644)
}

// registerConsumers registers the management clusters with Maestro, which accepts resources only for known consumers.
// On Kubernetes, the chart does this with the flag --consumers. Here it is a request, because a region also runs the
// Maestro server of the first release, which does not have the flag.
func (r *Region) registerConsumers(ctx context.Context) error {
	identity, err := mesh.LoadIdentity(r.identityDir("hcpctl"))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.MaestroServer), DisableKeepAlives: true}}
	for _, m := range r.clusters {
		body, err := json.Marshal(map[string]string{"name": m.name})
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.address(maestroRESTPort)+maestroapi.RESTPath+"/consumers", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("registering %s with Maestro: %w", m.name, err)
		}
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		_ = response.Body.Close()
		if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusConflict { // registered before
			return fmt.Errorf("registering %s with Maestro: %s: %s", m.name, response.Status, bytes.TrimSpace(text))
		}
	}
	return nil
}
