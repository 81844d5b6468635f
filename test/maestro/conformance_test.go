// Package maestro compares implementations of Maestro from the point of view of Cluster Service: our server and agent, the
// published server, and the in-memory server of Cluster Service's tests. One suite runs against all of them, through Cluster
// Service's own client, so that its tests rely on nothing that a real Maestro does not do.
package maestro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const consumer = "mgmt-1"

// implementation is a Maestro with one consumer and its agent.
type implementation struct {
	// client returns a client of the server for a source.
	client func(source string) *maestro.Client
	// published means that the server has none of the additions of hcpmesh: versions in responses, reasons of rejections,
	// the status of resources that do not exist.
	published bool
}

// testConformance runs the suite. start is called once.
func testConformance(t *testing.T, start func(t *testing.T) implementation) {
	m := start(t)
	s := newSource(t, m, "cluster-service")
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, m, s) })
	t.Run("feedback of 20 KiB", func(t *testing.T) {
		b, large := newBundle(""), strings.Repeat("x", 20<<10)
		set(b, large)
		must.Get(s.client.Create(t.Context(), b))(t)
		if got := s.untilApplied(t, b.ID, 1, large).feedback("object"); len(got) <= len(large) {
			t.Errorf("raw JSON feedback has %d bytes", len(got))
		}
	})
	t.Run("objects that are only read", func(t *testing.T) { testReadOnly(t, s) })
	t.Run("resync", func(t *testing.T) { testResync(t, m, s) })
	if m.published {
		return
	}
	t.Run("repeated requests", func(t *testing.T) { testRepeatedRequests(t, s) })
	t.Run("rejections", func(t *testing.T) { testRejections(t, m, s) })
	t.Run("versions of an ID never repeat", func(t *testing.T) { testVersions(t, s) })
	t.Run("deleting an unknown resource is confirmed", func(t *testing.T) {
		b := newBundle("x")
		must.Do(t, s.client.Delete(t.Context(), b))
		s.until(t, b.ID, "deleted", status.deleted)
	})
}

// testLifecycle creates, updates and deletes a resource.
func testLifecycle(t *testing.T, m implementation, s *source) {
	b := newBundle("one")
	version, err := s.client.Create(t.Context(), b)
	if err != nil || !m.published && version != 1 {
		t.Fatalf("created version %d, %v", version, err)
	}
	s.untilApplied(t, b.ID, 1, "one")
	set(b, "two")
	if version, err = s.client.Update(t.Context(), b); err != nil || !m.published && version != 2 {
		t.Fatalf("updated to version %d, %v", version, err)
	}
	last := s.untilApplied(t, b.ID, 2, "two")
	if got := last.feedback("object"); !strings.Contains(got, `"key":"two"`) {
		t.Errorf("raw JSON feedback is %q", got)
	}
	if strings.Contains(string(last.body), "manifestBundle") && !m.published {
		t.Error("the status contains the manifests although the subscription omits them")
	}
	must.Do(t, s.client.Delete(t.Context(), b))
	s.until(t, b.ID, "deleted", status.deleted)
}

// testReadOnly creates a resource that also reads a namespace of another client, with the rules for control-plane namespaces, and
// deletes it. The namespace stays.
func testReadOnly(t *testing.T, s *source) {
	const namespace = "kube-public"
	reading := func() *maestro.Bundle {
		b := newBundle("one")
		b.Manifests = append(b.Manifests, json.RawMessage(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`))
		b.Configs = append(b.Configs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: namespace},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
			FeedbackRules:      feedback.ControlPlaneNamespaceRules(), FeedbackScrapeType: workv1.FeedbackWatchType})
		return b
	}
	for range 2 {
		b := reading()
		must.Get(s.client.Create(t.Context(), b))(t)
		st := s.until(t, b.ID, "applied and read", func(st status) bool {
			return meta.IsStatusConditionTrue(st.Conditions, workv1.WorkApplied) && st.feedback("key") == "one" && st.feedback("uid") != ""
		})
		if got := st.feedback("deleteTime"); got != "" {
			t.Errorf("the namespace is being deleted since %s", got)
		}
		must.Do(t, s.client.Delete(t.Context(), b))
		s.until(t, b.ID, "deleted", status.deleted)
	}
}

// testResync requests statuses as a source does that was not subscribed.
func testResync(t *testing.T, m implementation, s *source) {
	known, changed := newBundle("a"), newBundle("b")
	for _, b := range []*maestro.Bundle{known, changed} {
		must.Get(s.client.Create(t.Context(), b))(t)
	}
	hash := s.untilApplied(t, known.ID, 1, "a").hash
	s.untilApplied(t, changed.ID, 1, "b")
	held := []maestro.Held{{ResourceID: changed.ID, StatusHash: "another"}}
	missing := uuid.NewString()
	if !m.published {
		held = append(held, maestro.Held{ResourceID: known.ID, StatusHash: hash}, maestro.Held{ResourceID: missing, StatusHash: "another"})
	}
	late := newSource(t, m, "cluster-service")
	must.Do(t, late.client.Resync(t.Context(), held))
	late.untilApplied(t, changed.ID, 1, "b")
	if !m.published {
		late.until(t, missing, "deleted", status.deleted)
		if st := late.last(known.ID); st.version != 0 {
			t.Errorf("received a status with an equal hash: %+v", st)
		}
	}
	must.Do(t, late.client.Resync(t.Context(), nil))
	late.untilApplied(t, known.ID, 1, "a")
}

// testRepeatedRequests sends each request twice.
func testRepeatedRequests(t *testing.T, s *source) {
	b := newBundle("one")
	for range 2 {
		if version, err := s.client.Create(t.Context(), b); err != nil || version != 1 {
			t.Errorf("created version %d, %v", version, err)
		}
	}
	set(b, "two")
	for range 2 {
		if version, err := s.client.Update(t.Context(), b); err != nil || version != 2 {
			t.Errorf("updated to version %d, %v", version, err)
		}
	}
	b.Labels = map[string]string{"team": "red"}
	if version, err := s.client.Update(t.Context(), b); err != nil || version != 3 {
		t.Errorf("new labels led to version %d, %v", version, err)
	}
	for range 2 {
		if err := s.client.Delete(t.Context(), b); err != nil {
			t.Error(err)
		}
	}
	s.until(t, b.ID, "deleted", status.deleted)
	if err := s.client.Delete(t.Context(), b); err != nil {
		t.Error(err)
	}
}

// testRejections sends requests that must fail.
func testRejections(t *testing.T, m implementation, s *source) {
	base := newBundle("one")
	must.Get(s.client.Create(t.Context(), base))(t)
	with := func(change func(b *maestro.Bundle)) *maestro.Bundle {
		b := *base
		change(&b)
		return &b
	}
	foreign := m.client("another-source")
	for name, test := range map[string]struct {
		request func(ctx context.Context, b *maestro.Bundle) (int64, error)
		bundle  *maestro.Bundle
		want    error // nil means an error of no kind that the client knows
	}{
		"create with other content":     {s.client.Create, with(func(b *maestro.Bundle) { set(b, "other") }), maestro.ErrConflict},
		"create of another source":      {foreign.Create, base, maestro.ErrRefused},
		"create without manifests":      {s.client.Create, with(func(b *maestro.Bundle) { b.ID, b.Manifests = uuid.NewString(), nil }), maestro.ErrRefused},
		"create of 600 KiB":             {s.client.Create, with(func(b *maestro.Bundle) { b.ID = uuid.NewString(); set(b, strings.Repeat("x", 600<<10)) }), maestro.ErrRefused},
		"create on an unknown consumer": {s.client.Create, with(func(b *maestro.Bundle) { b.ID, b.Consumer = uuid.NewString(), "nowhere" }), nil},
		"update of a stale version":     {s.client.Update, with(func(b *maestro.Bundle) { b.Version = 7; set(b, "two") }), maestro.ErrConflict},
		"update of an unknown ID":       {s.client.Update, with(func(b *maestro.Bundle) { b.ID = uuid.NewString() }), maestro.ErrNotFound},
		"update of another source":      {foreign.Update, with(func(b *maestro.Bundle) { set(b, "two") }), maestro.ErrRefused},
		"update to another consumer":    {s.client.Update, with(func(b *maestro.Bundle) { b.Consumer = "nowhere" }), maestro.ErrRefused},
		"delete of a stale version":     {func(ctx context.Context, b *maestro.Bundle) (int64, error) { return 0, s.client.Delete(ctx, b) }, with(func(b *maestro.Bundle) { b.Version = 7 }), maestro.ErrConflict},
		"delete of another source":      {func(ctx context.Context, b *maestro.Bundle) (int64, error) { return 0, foreign.Delete(ctx, b) }, base, maestro.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.request(t.Context(), test.bundle)
			known := errors.Is(err, maestro.ErrConflict) || errors.Is(err, maestro.ErrNotFound) || errors.Is(err, maestro.ErrRefused)
			if err == nil || known != (test.want != nil) || !errors.Is(err, test.want) && test.want != nil {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	s.untilApplied(t, base.ID, 1, "one")
}

// testVersions creates a resource again after its deletion.
func testVersions(t *testing.T, s *source) {
	b := newBundle("one")
	for _, want := range []int64{1, 2} {
		if version, err := s.client.Create(t.Context(), b); err != nil || version != want {
			t.Fatalf("created version %d, %v; want %d", version, err, want)
		}
		s.untilApplied(t, b.ID, want, "one")
		must.Do(t, s.client.Delete(t.Context(), b))
		s.until(t, b.ID, "deleted", func(st status) bool { return st.deleted() && st.version == want })
	}
}

// newBundle returns a bundle with one ConfigMap.
func newBundle(value string) *maestro.Bundle {
	id := uuid.NewString()
	b := &maestro.Bundle{ID: id, Name: id, Consumer: consumer, Configs: []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "cm-" + id, Namespace: "default"},
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: "cluster-service"}},
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
			{Name: "key", Path: ".data.key"}, {Name: "object", Path: ".data"}}}},
		FeedbackScrapeType: workv1.FeedbackWatchType,
	}}}
	set(b, value)
	return b
}

// set replaces the ConfigMap of a bundle by one with another value.
func set(b *maestro.Bundle, value string) {
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"key":%q}}`,
		b.Configs[0].ResourceIdentifier.Name, value)
	b.Manifests = []json.RawMessage{json.RawMessage(object)}
}

// status is a received status.
type status struct {
	version    int64
	hash       string
	body       []byte
	Conditions []metav1.Condition         `json:"conditions"`
	Resources  []workv1.ManifestCondition `json:"resourceStatus"`
}

func (s status) deleted() bool {
	return meta.IsStatusConditionTrue(s.Conditions, maestroapi.ConditionDeleted)
}

// feedback returns the text of a feedback value, or "".
func (s status) feedback(name string) string {
	for _, resource := range s.Resources {
		for _, value := range resource.StatusFeedbacks.Values {
			switch {
			case value.Name != name:
			case value.Value.String != nil:
				return *value.Value.String
			case value.Value.JsonRaw != nil:
				return *value.Value.JsonRaw
			}
		}
	}
	return ""
}

// source is a client with a subscription.
type source struct {
	client *maestro.Client

	mu       sync.Mutex
	statuses map[string][]status
}

// newSource subscribes until the test ends, and returns when the subscription is established.
func newSource(t *testing.T, m implementation, name string) *source {
	t.Helper()
	s := &source{client: m.client(name), statuses: map[string][]status{}}
	ctx, cancel := context.WithCancel(context.Background())
	subscribed := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		s.client.Subscribe(ctx, maestro.Subscriber{Started: func(context.Context) error { close(subscribed); return nil }, Status: func(e *maestro.Event) {
			st := status{version: e.Version, hash: e.StatusHash, body: e.Body}
			if err := json.Unmarshal(e.Body, &st); err != nil {
				t.Errorf("status of %s: %v", e.ResourceID, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.statuses[e.ResourceID] = append(s.statuses[e.ResourceID], st)
		}})
	})
	t.Cleanup(func() { cancel(); group.Wait() })
	<-subscribed
	return s
}

// last returns the last status of a resource, or a zero status.
func (s *source) last(id string) status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.statuses[id]; len(all) > 0 {
		return all[len(all)-1]
	}
	return status{}
}

// until waits for a status that satisfies the condition, and returns it.
func (s *source) until(t *testing.T, id, what string, condition func(status) bool) (found status) {
	t.Helper()
	eventually.Soon(t, "resource "+id+" is "+what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.IndexFunc(s.statuses[id], condition)
		if i < 0 {
			return fmt.Errorf("%d statuses: %+v", len(s.statuses[id]), s.statuses[id])
		}
		found = s.statuses[id][i]
		return nil
	})
	return found
}

// untilApplied waits until a version is applied with the given value as feedback.
func (s *source) untilApplied(t *testing.T, id string, version int64, value string) status {
	t.Helper()
	return s.until(t, id, fmt.Sprintf("applied at version %d", version), func(st status) bool {
		applied := meta.FindStatusCondition(st.Conditions, workv1.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionTrue && applied.ObservedGeneration == version &&
			st.version == version && st.feedback("key") == value
	})
}
