package v20260901preview_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/v20260901preview"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// FuzzDecodeCluster: any JSON decodes without a panic; and what decodes well, shown and sent back, stays the same.
func FuzzDecodeCluster(f *testing.F) {
	f.Add([]byte(`{"location":"westus3","tags":{"a":"b"},"identity":{"type":"UserAssigned","userAssignedIdentities":{"/a":{},"/b":null}},` +
		`"properties":{"version":{"id":"4.20"},"api":{"authorizedCidrs":["1.0.0.0/8"]},"etcd":{"dataEncryption":{"keyManagementMode":"CustomerManaged",` +
		`"customerManaged":{"kms":{"vaultName":"v","visibility":"Public","activeKey":{"name":"n","version":"1"}}}}},"imageDigestMirrors":[{"source":"a","mirrors":["b"]}]}}`))
	f.Add([]byte(`{"properties":{"network":{"hostPrefix":"23"},"imageDigestMirrors":[null,{}]},"identity":{"userAssignedIdentities":{"x":1}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		fields, err := wire.ParseObject(content)
		if err != nil {
			return
		}
		body := wire.NewBody(fields)
		cluster := v20260901preview.DecodeCluster(body, &hub.Cluster{}, true)
		if len(body.Problems()) > 0 {
			return
		}
		text, err := json.Marshal(v20260901preview.EncodeCluster(cluster, hub.Accepted, &hub.ClusterStatus{}))
		if err != nil {
			t.Fatal(err)
		}
		fields, err = wire.ParseObject(text)
		if err != nil {
			t.Fatal(err)
		}
		again := v20260901preview.DecodeCluster(wire.NewBody(fields), cluster, true)
		// An empty text and an absent one are the same, and neither is shown: only what has no default can be that.
		if hasEmpty(cluster) {
			return
		}
		if diff := cmp.Diff(cluster, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-first +again):\n%s", content, diff)
		}
	})
}

// hasEmpty reports whether a field with a default was given as empty or zero, which validation refuses.
func hasEmpty(c *hub.Cluster) bool {
	p := &c.Properties
	return p.Network.NetworkType == "" || p.Network.PodCIDR == "" || p.Network.ServiceCIDR == "" || p.Network.MachineCIDR == "" || p.Network.HostPrefix == 0 ||
		p.Version.ChannelGroup == "" || p.API.Visibility == "" || p.Ingress.Type == "" || p.Platform.OutboundType == "" ||
		p.Autoscaling.MaxNodeProvisionTimeSeconds == 0 || p.Autoscaling.MaxPodGracePeriodSeconds == 0 ||
		p.ClusterImageRegistry.State == "" || p.CryptoRestrictions == "" || p.Etcd.DataEncryption.KeyManagementMode == "" ||
		p.Etcd.DataEncryption.CustomerManaged != nil && p.Etcd.DataEncryption.CustomerManaged.EncryptionType == ""
}
