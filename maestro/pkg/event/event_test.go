package event

import (
	"encoding/json"
	"fmt"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

func TestSpecRoundTrip(t *testing.T) {
	r := &resource.Resource{
		ID: "id", Source: "cluster-service", Consumer: "mgmt-1", Version: 3, Tracing: "trace",
		Metadata: json.RawMessage(`{"name":"theirs","labels":{"a":"b"}}`),
		Spec:     json.RawMessage(`{"manifests":[{"kind":"ConfigMap"}]}`),
	}
	evt := must.Get(EncodeSpec(r, "maestro", Update))(t)
	if action, err := ActionOf(evt); err != nil || action != Update {
		t.Fatalf("action %s, %v", action, err)
	}
	got := must.Get(DecodeSpec(evt, Update))(t)
	var metadata metav1.ObjectMeta
	if err := json.Unmarshal(got.Metadata, &metadata); err != nil || metadata.Name != "id" || metadata.Labels["a"] != "b" {
		t.Errorf("metadata for the agent is %s, %v; its name must be the ID", got.Metadata, err)
	}
	got.Metadata, got.Source = r.Metadata, r.Source
	if diff := cmp.Diff(r, got); diff != "" {
		t.Error(diff)
	}
}

func TestStatusContainsTheBundle(t *testing.T) {
	r := &resource.Resource{
		ID: "id", Source: "cluster-service", Consumer: "mgmt-1", Version: 2, Metadata: json.RawMessage(`{"name":"theirs"}`),
		Spec: json.RawMessage(`{"manifests":[]}`),
		Status: &resource.Status{ResourceID: "id", Consumer: "mgmt-1", Version: 1, Agent: "mgmt-1-agent", Sequence: "42", Hash: "h",
			Body: json.RawMessage(`{"conditions":[],"resourceStatus":[]}`)},
	}
	evt := must.Get(EncodeStatus(r))(t)
	want := map[string]any{"resourceid": "id", "resourceversion": int32(1), "sequenceid": "42", "statushash": "h",
		"clustername": "mgmt-1", "originalsource": "cluster-service", "metadata": `{"name":"theirs"}`}
	if diff := cmp.Diff(want, evt.Extensions()); diff != "" {
		t.Error(diff)
	}
	if got := string(evt.Data()); got != `{"conditions":[],"manifestBundle":{"manifests":[]},"resourceStatus":[]}` {
		t.Error(got)
	}
}

func TestLargeResyncIsSplit(t *testing.T) {
	held := make([]payload.ResourceVersion, 9000)
	for i := range held {
		held[i] = payload.ResourceVersion{ResourceID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), ResourceVersion: 1 << 30}
	}
	events := must.Get(EncodeSpecResync("agent", "mgmt-1", "resync", held))(t)
	all := map[string]int64{}
	for i, evt := range events {
		if n := len(evt.Data()); n > 490<<10 {
			t.Errorf("part %d has %d bytes", i, n)
		}
		r := must.Get(DecodeSpecResync(evt))(t)
		if r.Part != int64(i+1) || r.Parts != int64(len(events)) || r.ID != "resync" {
			t.Errorf("part %d: %d of %d of %q", i, r.Part, r.Parts, r.ID)
		}
		for id, version := range r.Held {
			all[id] = version
		}
	}
	if len(all) != len(held) {
		t.Errorf("received %d of %d", len(all), len(held))
	}
}

// TestMalformedElementsOfResyncs checks that malformed elements of both lists of resyncs are named and hide no others, and that a status resync that has
// only malformed elements does not request all statuses.
func TestMalformedElementsOfResyncs(t *testing.T) {
	evt := cloudevents.NewEvent()
	evt.SetExtension("clustername", "mgmt-1")
	for elements, want := range map[string]struct{ used, ignored int }{
		`{"resourceID":"a"},{"resourceID":"b"}`: {2, 0},
		``:                                      {0, 0},
		`{"resourceID":"a"},{"resourceID":7},{"resourceID":"b"}`:                     {2, 1},
		`1,{"resourceID":"a"},{},null,{"resourceID":"\u0000"}`:                       {1, 4},
		`{"resourceID":"a","resourceVersion":"1","statusHash":1},{"resourceID":"b"}`: {1, 1},
		`"a"`: {0, 1},
	} {
		_ = evt.SetData(cloudevents.ApplicationJSON, []byte(`{"resourceVersions":[`+elements+`],"statusHashes":[`+elements+`]}`))
		if r, err := DecodeSpecResync(&evt); err != nil || len(r.Held) != want.used || r.Ignored.Count != want.ignored {
			t.Errorf("%s: %v, %v", elements, r, err)
		}
		hashes, ignored, err := DecodeStatusResync(&evt)
		if len(hashes) != want.used || ignored.Count != want.ignored || (err != nil) != (want.used == 0 && want.ignored > 0) {
			t.Errorf("%s: %v, %v, %v", elements, hashes, ignored, err)
		}
	}
}

// FuzzDecode checks that decoding any input returns a value or an error, and that a decoded value can be encoded again.
func FuzzDecode(f *testing.F) {
	seed := func(kind, data string) {
		f.Add("io.open-cluster-management.works.v1alpha1.manifestbundles."+kind, "cluster-service", "id", "mgmt-1", "7", "42", `{"name":"n"}`, "1", data)
	}
	seed("spec.create_request", `{"manifests":[{"apiVersion":"v1","kind":"ConfigMap"}]}`)
	seed("spec.delete_request", `{"manifests":[]}`)
	seed("spec.resync_request", `{"resourceVersions":[{"resourceID":"id","resourceVersion":3}]}`)
	seed("status.resync_request", `{"statusHashes":[{"resourceID":"id","statusHash":"h"}]}`)
	seed("status.update_request", `null`)
	seed("status.update_request", `{"conditions":[{"type":"Deleted","status":"True"}],"resourceStatus":[]}`)
	f.Fuzz(func(t *testing.T, kind, source, id, cluster, version, sequence, metadata, part, data string) {
		evt := cloudevents.NewEvent()
		evt.SetID("x")
		evt.SetType(kind)
		evt.SetSource(source)
		for name, value := range map[string]string{"resourceid": id, "clustername": cluster, "resourceversion": version,
			"sequenceid": sequence, "metadata": metadata, "resyncpart": part, "resyncparts": part, "resyncid": id} {
			evt.SetExtension(name, value)
		}
		_ = evt.SetData(cloudevents.ApplicationJSON, []byte(data))
		action, err := ActionOf(&evt)
		if err != nil {
			return
		}
		switch action {
		case Create, Update, Delete:
			r, err := DecodeSpec(&evt, action)
			if err != nil {
				return
			}
			r.Version = 1
			if _, err := EncodeSpec(r, "maestro", action); err != nil {
				t.Errorf("decoded but not encodable: %v", err)
			}
		case StatusUpdate:
			s, err := DecodeStatus(&evt)
			if err != nil {
				return
			}
			if _, err := EncodeStatus(&resource.Resource{ID: "id", Spec: json.RawMessage(`{}`), Status: s}); err != nil {
				t.Errorf("decoded but not encodable: %v", err)
			}
		case SpecResync:
			_, _ = DecodeSpecResync(&evt)
			_ = AcknowledgeResync(&evt, "maestro")
		case StatusResync:
			_, _, _ = DecodeStatusResync(&evt)
		}
	})
}
