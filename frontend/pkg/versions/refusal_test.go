package versions_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// maxBody is the most bytes of a body that the frontend reads.
const maxBody = 4 << 20

// refusedBodies returns bodies of clusters that are refused, by what is wrong with them.
func refusedBodies(tb testing.TB) (accepted []byte, refused map[string][]byte) {
	accepted, refused = full(tb, version.Newest().Name), refusalcost.Texts(maxBody)
	maps.Copy(refused, map[string][]byte{
		"field twice":        bytes.Replace(accepted, []byte(`"location"`), []byte(`"tags":{},"tags":{},"location"`), 1),
		"unknown field":      bytes.Replace(accepted, []byte(`"location"`), []byte(`"other":1,"location"`), 1),
		"unknown fields":     refusalcost.Numbered(maxBody, "{", `"%d":1,`, `"last":1}`),
		"unknown nulls":      refusalcost.Numbered(maxBody, "{", `"%d":null,`, `"last":1}`),
		"unknown list":       refusalcost.Filled(maxBody, `{"other":[`, "1,", "1]}"),
		"unknown objects":    refusalcost.Filled(maxBody, `{"other":[`, "{},", "{}]}"),
		"unknown depth":      append(refusalcost.Filled(9000, `{"other":`, "[", ""), refusalcost.Filled(9000, "", "]", "}")...),
		"list for a text":    refusalcost.Filled(maxBody, `{"location":[`, "1,", "1]}"),
		"list for an object": refusalcost.Filled(maxBody, `{"properties":[`, "{},", "{}]}"),
		"object for a list":  refusalcost.Numbered(maxBody, `{"properties":{"imageDigestMirrors":{`, `"%d":{},`, `"last":1}}}`),
		"numbers of tags":    refusalcost.Numbered(maxBody, `{"tags":{`, `"%d":1,`, `"last":1}}`),
		"objects of tags":    refusalcost.Numbered(maxBody, `{"tags":{`, `"%d":{"a":1},`, `"last":1}}`),
		"escapes of tags":    refusalcost.Numbered(maxBody, `{"tags":{`, `"\n%d":"\n",`, `"last":"1"}}`),
		"many tags":          refusalcost.Numbered(maxBody, `{"tags":{`, `"%d":"",`, `"last":"1"}}`),
		"many identities":    refusalcost.Numbered(maxBody, `{"identity":{"userAssignedIdentities":{`, `"%d":{},`, `"last":{}}}}`),
		"many objects":       refusalcost.Filled(maxBody, `{"properties":{"imageDigestMirrors":[`, "{},", "{}]}}"),
		"many texts":         refusalcost.Filled(maxBody, `{"properties":{"imageDigestMirrors":[{"mirrors":[`, `"",`, `""]}]}}`),
	})
	return accepted, refused
}

// decodeCluster parses a body of a cluster, searches it for unknown fields, and decodes it.
func decodeCluster() func(content []byte) error {
	version := versions.All()[version.Newest().Name]
	return func(content []byte) error {
		fields, err := wire.Parse(content, version.Form(hub.ClusterResourceType))
		if err != nil {
			return err
		}
		if field := version.UnknownField(hub.ClusterResourceType, fields); field != "" {
			return errors.New(field)
		}
		body := wire.NewBody(fields)
		version.DecodeCluster(body, &hub.Cluster{}, true)
		if len(body.Problems()) > 0 {
			return errors.New(body.Problems()[0].Message)
		}
		return nil
	}
}

// TestRefusedBodiesNeedNoMoreMemory compares bodies that are refused with a full cluster.
func TestRefusedBodiesNeedNoMoreMemory(t *testing.T) {
	accepted, refused := refusedBodies(t)
	refusalcost.CheckMemory(t, accepted, refused, decodeCluster())
}

// BenchmarkRefusedBodies compares bodies that are refused with a full cluster.
func BenchmarkRefusedBodies(b *testing.B) {
	accepted, refused := refusedBodies(b)
	refusalcost.Compare(b, accepted, refused, decodeCluster())
}
