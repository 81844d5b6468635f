package server

import (
	"bytes"
	"maps"
	"net/http/httptest"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// eachBody calls compare with each parser of bodies: an accepted body, refused ones, and the parser.
func eachBody(compare func(name string, accepted []byte, refused map[string][]byte, parse func([]byte) error)) {
	of := func(content []byte) *request {
		return &request{w: httptest.NewRecorder(), http: httptest.NewRequest("POST", "/", bytes.NewReader(content))}
	}
	refused := refusalcost.Texts(maxBody)
	maps.Copy(refused, map[string][]byte{
		"field twice":   []byte(`{"class":"operate","reason":"a request of an engineer","class":"operate","ticket":"INC-1","duration":"1h"}`),
		"unknown field": []byte(`{"class":"operate","reason":"a request of an engineer","other":"operate","ticket":"INC-1","duration":"1h"}`),
		"wrong type":    []byte(`{"class":1,"reason":"a request of an engineer","ticket":"INC-1","duration":"1h"}`),
	})
	compare("elevation", []byte(`{"class":"operate","reason":"a request of an engineer","ticket":"INC-1","duration":"1h"}`), refused, func(content []byte) error {
		return of(content).decodeBody(&adminv1.ElevationRequest{})
	})
	compare("rpc", []byte(`{"step":"the name of the step of a cluster that is forced"}`), refusalcost.Texts(maxBody), func(content []byte) error {
		return rpcRequest(of(content), &clusterservicev1.ForceClusterStepRequest{})
	})
}

// TestRefusedBodiesNeedNoMoreMemory compares bodies that are refused with accepted ones.
func TestRefusedBodiesNeedNoMoreMemory(t *testing.T) {
	eachBody(func(name string, accepted []byte, refused map[string][]byte, parse func([]byte) error) {
		t.Run(name, func(t *testing.T) { refusalcost.CheckMemory(t, accepted, refused, parse) })
	})
}

// BenchmarkRefusedBodies compares bodies that are refused with accepted ones.
func BenchmarkRefusedBodies(b *testing.B) {
	eachBody(func(name string, accepted []byte, refused map[string][]byte, parse func([]byte) error) {
		b.Run(name, func(b *testing.B) { refusalcost.Compare(b, accepted, refused, parse) })
	})
}
