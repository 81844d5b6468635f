package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protocol"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

const eventPrefix = "io.open-cluster-management.works.v1alpha1.manifestbundles."

// source is the client of a source. It uses the published protocol only.
type source struct {
	t      testing.TB
	name   string
	conn   *grpc.ClientConn
	client pbv1.CloudEventServiceClient

	mu       sync.Mutex
	statuses map[string]statusEvent
	seen     map[string][]statusEvent
	beats    int
	// agents are the last heartbeats of agents.
	agents  map[string]time.Time
	changed chan struct{}
	cancel  context.CancelFunc
}

type statusEvent struct {
	Version    int64
	Sequence   string
	Hash       string
	Conditions []metav1.Condition         `json:"conditions"`
	Resources  []workv1.ManifestCondition `json:"resourceStatus"`
	Bundle     json.RawMessage            `json:"manifestBundle"`
	At         time.Time
}

func (s statusEvent) is(condition string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, condition)
}

// applied reports whether a version has been applied.
func (s statusEvent) applied(version int64) bool {
	c := meta.FindStatusCondition(s.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == version && s.Version == version
}

// feedback returns a feedback value, or "".
func (s statusEvent) feedback(name string) string {
	for _, manifest := range s.Resources {
		for _, value := range manifest.StatusFeedbacks.Values {
			if value.Name != name {
				continue
			}
			switch {
			case value.Value.String != nil:
				return *value.Value.String
			case value.Value.Integer != nil:
				return fmt.Sprint(*value.Value.Integer)
			case value.Value.JsonRaw != nil:
				return *value.Value.JsonRaw
			}
		}
	}
	return ""
}

func (r *region) source(s *maestrotest.Server, name string) *source {
	r.t.Helper()
	transport := credentials.NewTLS(r.Identity(name).ClientTLS(mesh.MaestroServer))
	if s.Plaintext {
		transport = insecure.NewCredentials()
	}
	conn := must.Get(grpc.NewClient("passthrough:///"+s.GRPC, grpc.WithTransportCredentials(transport)))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	return &source{
		t: r.t, name: name, conn: conn, client: pbv1.NewCloudEventServiceClient(conn),
		statuses: map[string]statusEvent{}, seen: map[string][]statusEvent{}, changed: make(chan struct{}, 1), cancel: func() {},
	}
}

// withAgent starts a server with one consumer, its agent, and a subscribed source.
func (r *region) withAgent() (s *maestrotest.Server, consumer string, cs *source) {
	r.t.Helper()
	s = r.StartServer()
	consumer = r.consumer(s)
	r.startAgent(consumer)
	cs = r.source(s, "cluster-service")
	cs.subscribe()
	return s, consumer, cs
}

// withFakeAgent is withAgent with an agent under the control of the test.
func (r *region) withFakeAgent() (s *maestrotest.Server, consumer string, agent *wire, cs *source) {
	r.t.Helper()
	s = r.StartServer()
	consumer = r.consumer(s)
	agent = r.agentWire(consumer)
	cs = r.source(s, "cluster-service")
	cs.subscribe()
	return s, consumer, agent, cs
}

// subscribe receives statuses until the test ends or s.cancel is called.
func (s *source) subscribe() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := s.client.Subscribe(ctx, &pbv1.SubscriptionRequest{Source: s.name})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		s.t.Fatalf("subscribe: %v", err)
	}
	done := make(chan struct{})
	s.cancel = func() { cancel(); <-done }
	s.t.Cleanup(s.cancel)
	go func() {
		defer close(done)
		for {
			in, err := stream.Recv()
			if err != nil {
				return
			}
			s.take(ctx, in)
		}
	}()
}

func (s *source) take(ctx context.Context, in *pbv1.CloudEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Type == "io.open-cluster-management.cloudevents.heartbeat" {
		s.beats++
		var beat maestroapi.Heartbeat
		if data := in.GetBinaryData(); len(data) > 0 {
			if err := json.Unmarshal(data, &beat); err != nil {
				s.t.Errorf("heartbeat: %v", err)
			}
		}
		s.agents = beat.Agents
		return
	}
	evt, err := binding.ToEvent(ctx, protocol.NewMessage(in))
	if err != nil {
		s.t.Errorf("status event: %v", err)
		return
	}
	st := statusEvent{At: time.Now()}
	if err := json.Unmarshal(evt.Data(), &st); err != nil {
		s.t.Errorf("status event: %v", err)
	}
	ext := evt.Extensions()
	// Our server sends an integer, the published server a string.
	_, _ = fmt.Sscan(fmt.Sprint(ext["resourceversion"]), &st.Version)
	st.Sequence, _ = ext["sequenceid"].(string)
	st.Hash, _ = ext["statushash"].(string)
	id, _ := ext["resourceid"].(string)
	s.statuses[id] = st
	s.seen[id] = append(s.seen[id], st)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *source) status(id string) statusEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses[id]
}

// until waits for a status of the resource that satisfies the condition.
func (s *source) until(id, what string, condition func(statusEvent) bool) statusEvent {
	s.t.Helper()
	var last statusEvent
	eventually.Soon(s.t, "resource "+id+" is "+what, func() error {
		last = s.status(id)
		if condition(last) {
			return nil
		}
		return fmt.Errorf("version %d, conditions %+v", last.Version, last.Conditions)
	})

	return last
}

func (s *source) untilApplied(id string, version int64) statusEvent {
	s.t.Helper()
	return s.until(id, fmt.Sprintf("applied at version %d", version), func(st statusEvent) bool { return st.applied(version) })
}

// untilFedBack waits until a version is applied and the value of its key is reported.
func (s *source) untilFedBack(id string, version int64, value string) {
	s.t.Helper()
	s.untilApplied(id, version)
	s.until(id, "fed back", func(st statusEvent) bool { return st.feedback("key") == value })
}

func (s *source) untilDeleted(id string) {
	s.t.Helper()
	s.until(id, "deleted", func(st statusEvent) bool { return st.is("Deleted") })
}

// bundle is a manifest bundle of a source.
type bundle struct {
	ID, Consumer string
	Version      int64
	Manifests    []any
	Configs      []workv1.ManifestConfigOption
	Metadata     map[string]any
	TraceParent  string
}

// publish sends a request and returns the resulting version.
func (s *source) publish(action string, b bundle) (int64, error) {
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(s.name)
	evt.SetType(eventPrefix + "spec." + action + "_request")
	evt.SetExtension("resourceid", b.ID)
	evt.SetExtension("resourceversion", b.Version)
	evt.SetExtension("clustername", b.Consumer)
	if b.Metadata == nil {
		b.Metadata = map[string]any{"name": b.ID}
	}
	text, err := json.Marshal(b.Metadata)
	if err != nil {
		return 0, err
	}
	evt.SetExtension("metadata", string(text))
	if b.TraceParent != "" {
		evt.SetExtension("traceparent", b.TraceParent)
	}
	if action == "delete" {
		evt.SetExtension("deletiontimestamp", time.Now())
	}
	if err := evt.SetData(cloudevents.ApplicationJSON, map[string]any{"manifests": b.Manifests, "manifestConfigs": b.Configs}); err != nil {
		return 0, err
	}
	return s.send(&evt)
}

func (s *source) send(evt *cloudevents.Event) (int64, error) {
	ctx := s.t.Context()
	out := &pbv1.CloudEvent{}
	if err := protocol.WritePBMessage(ctx, binding.ToMessage(evt), out); err != nil {
		return 0, err
	}
	var header metadata.MD
	_, err := s.client.Publish(ctx, &pbv1.PublishRequest{Event: out}, grpc.Header(&header))
	var version int64
	if v := header.Get(maestroapi.HeaderResourceVersion); len(v) > 0 {
		_, _ = fmt.Sscan(v[0], &version)
	}
	return version, err
}

func (s *source) must(action string, b bundle) int64 {
	s.t.Helper()
	version, err := s.publish(action, b)
	if err != nil {
		s.t.Fatalf("%s of resource %s: %v", action, b.ID, err)
	}
	return version
}

// mustAll sends a request for each of the works, n at a time.
func (s *source) mustAll(action string, works []bundle, n int) {
	s.t.Helper()
	must.Do(s.t, inParallel(n, works, func(b bundle) error {
		if _, err := s.publish(action, b); err != nil {
			return fmt.Errorf("%s of resource %s: %w", action, b.ID, err)
		}
		return nil
	}))
}

// inParallel calls do for each of the works, n at a time, and returns the first error.
func inParallel(n int, works []bundle, do func(bundle) error) error {
	var running errgroup.Group
	running.SetLimit(n)
	for _, b := range works {
		running.Go(func() error { return do(b) })
	}
	return running.Wait()
}

// resync requests the statuses that differ from those listed.
func (s *source) resync(hashes map[string]string) {
	s.t.Helper()
	if err := s.requestStatuses(hashes); err != nil {
		s.t.Fatalf("resync: %v", err)
	}
}

func (s *source) requestStatuses(hashes map[string]string) error {
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(s.name)
	evt.SetType(eventPrefix + "status.resync_request")
	evt.SetExtension("clustername", "")
	list := []map[string]string{}
	for id, hash := range hashes {
		list = append(list, map[string]string{"resourceID": id, "statusHash": hash})
	}
	if err := evt.SetData(cloudevents.ApplicationJSON, map[string]any{"statusHashes": list}); err != nil {
		return err
	}
	_, err := s.send(&evt)
	return err
}

// configMap returns a manifest with one key.
func configMap(name, value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"data":     map[string]any{"key": value},
	}
}

func configOf(name string) workv1.ManifestConfigOption {
	return workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: name, Namespace: "default"},
		UpdateStrategy: &workv1.UpdateStrategy{
			Type:            workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: "cluster-service"},
		},
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "key", Path: ".data.key"}}}},
	}
}

// newBundle returns a bundle with one ConfigMap of its own.
func newBundle(consumer, value string) bundle {
	name := unique("cm")
	return bundle{
		ID: uuid.NewString(), Consumer: consumer,
		Manifests: []any{configMap(name, value)}, Configs: []workv1.ManifestConfigOption{configOf(name)},
	}
}

func (b bundle) configMapName() string {
	return b.Manifests[0].(map[string]any)["metadata"].(map[string]any)["name"].(string)
}

func (b bundle) with(value string) bundle {
	b.Manifests = []any{configMap(b.configMapName(), value)}
	return b
}

func unique(prefix string) string { return fmt.Sprintf("%s-%08x", prefix, rand.Uint32()) }
