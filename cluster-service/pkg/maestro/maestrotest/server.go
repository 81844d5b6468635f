// Package maestrotest is an in-memory Maestro for tests. Sources use it over the real gRPC protocol, and a Reconciler simulates
// the management clusters. It stores resources with their versions, rejects requests as the real server does, serves resyncs,
// and injects faults: rejected requests, lost responses, unavailability.
package maestrotest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	workv1 "open-cluster-management.io/api/work/v1"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// maxBundle is the maximum size of a bundle, in bytes: it must fit into an MQTT message.
const maxBundle = 500 << 10

// Resource is a stored bundle.
type Resource struct {
	ID, Source, Consumer, Name string
	Version                    int64
	Manifests                  []json.RawMessage
	Configs                    []workv1.ManifestConfigOption
	Deleting                   bool
	// TraceParent is the trace context of the request that created the bundle.
	TraceParent string

	labels   map[string]string
	sequence int64
	status   []byte
	hash     string
	// incarnation is the number of times that the objects of the bundle were removed, and missing is true while they do not
	// exist again.
	incarnation int
	missing     bool
	// read is the state of the objects that the bundle only reads.
	read readObjects
	// values are the last reported values of each object.
	values map[workv1.ResourceIdentifier][]workv1.FeedbackValue
}

// Server is a running Maestro.
type Server struct {
	pbv1.UnimplementedCloudEventServiceServer
	// Address is the plain-text listener, host:port.
	Address string
	// consumers are the known management clusters.
	consumers map[string]bool

	mu        sync.Mutex
	resources map[string]*Resource
	// tombstones contains the last version of deleted resources by ID; the versions of an ID never repeat.
	tombstones  map[string]int64
	subscribers map[chan *pbv1.CloudEvent]string
	fault       func(action string, r *Resource) (before, after error)
	// beats are the times of the last heartbeats of the agents.
	beats map[string]time.Time
	// silent are the consumers whose agents are stopped.
	silent map[string]bool
	// changed are the IDs of the resources that agents must process.
	changed []string
	arrived chan struct{}
	// agents reports that RunAgents was called.
	agents  bool
	history []string
	grpc    *grpc.Server
	stopped chan struct{}
	// held are the deletions that are not confirmed, by the name of the bundle.
	held map[string]*hold
	// refuse returns the message with which the API servers permanently refuse an object, and the refused field.
	refuse func(object Object) (field, message string)
}

// hold delays the confirmation of a deletion: until its finalizers are removed if it has any, and until Release otherwise.
type hold struct{ finalizers []string }

// Start starts a server with these consumers.
func Start(consumers ...string) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Address: listener.Addr().String(), consumers: map[string]bool{}, silent: map[string]bool{}, beats: map[string]time.Time{}, resources: map[string]*Resource{}, tombstones: map[string]int64{},
		subscribers: map[chan *pbv1.CloudEvent]string{}, arrived: make(chan struct{}, 1), held: map[string]*hold{}}
	for _, c := range consumers {
		s.consumers[c] = true
	}
	s.serve(listener)
	return s, nil
}

func (s *Server) serve(listener net.Listener) {
	s.grpc, s.stopped = grpc.NewServer(), make(chan struct{})
	pbv1.RegisterCloudEventServiceServer(s.grpc, s)
	go func(server *grpc.Server, stopped chan struct{}) {
		defer close(stopped)
		_ = server.Serve(listener)
	}(s.grpc, s.stopped)
}

// Stop stops the server and its connections at once. Its resources stay for a Restart.
func (s *Server) Stop() {
	s.grpc.Stop()
	<-s.stopped
}

// Stopped reports whether the server was stopped and not restarted.
func (s *Server) Stopped() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// Restart serves on the same address again.
func (s *Server) Restart() error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	s.serve(listener)
	return nil
}

// Fault sets the faults of publish requests: an error before the effect, or after it, which is a lost response. Nil removes them.
func (s *Server) Fault(fault func(action string, r *Resource) (before, after error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Refuse sets the rules of the kinds on all management clusters: refuse returns the field and the message for an object that is permanently
// refused, and empty strings for all others. A nil refuse accepts all objects. Bundles are applied with the new rules at their next change.
func (s *Server) Refuse(refuse func(object Object) (field, message string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// Resources returns the stored bundles by ID.
func (s *Server) Resources() map[string]Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[string]Resource{}
	for id, r := range s.resources {
		held[id] = *r
	}
	return held
}

// History returns all effective actions in order, for example `create <name>`.
func (s *Server) History() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.history...)
}

// Hold delays the confirmation of a bundle's deletion until Release or, if finalizers are given, until a deletion tells the
// agent to remove all of them.
func (s *Server) Hold(name string, finalizers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = &hold{finalizers}
}

// Release ends a Hold.
func (s *Server) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(name)
}

func (s *Server) releaseLocked(name string) {
	delete(s.held, name)
	for id, r := range s.resources {
		if r.Name == name {
			s.changed = append(s.changed, id)
		}
	}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// removeFinalizers removes finalizers from a held deletion, as agents do for the annotation of a deletion.
func (s *Server) removeFinalizers(name, finalizers string) {
	held := s.held[name]
	if held == nil || len(held.finalizers) == 0 || finalizers == "" {
		return
	}
	removed := strings.Split(finalizers, ",")
	held.finalizers = slices.DeleteFunc(held.finalizers, func(f string) bool { return slices.Contains(removed, f) })
	if len(held.finalizers) == 0 {
		s.releaseLocked(name)
	}
}

// Touch makes the agents report every bundle again, for changes of a management cluster that no request caused.
func (s *Server) Touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.resources {
		s.changed = append(s.changed, id)
	}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// Silence stops the agent of a consumer, or lets it continue.
func (s *Server) Silence(consumer string, silent bool) {
	s.mu.Lock()
	s.silent[consumer] = silent
	s.mu.Unlock()
	s.Touch()
}

// Remove removes the objects of a bundle as a client of the management cluster does.
func (s *Server) Remove(id string) { s.change(id, func(r *Resource) { r.missing = true }) }

// ApplyAgain makes the agent apply the removed objects of a bundle. They have new UIDs.
func (s *Server) ApplyAgain(id string) {
	s.change(id, func(r *Resource) { r.missing, r.incarnation = false, r.incarnation+1 })
}

// readObjects is the state of the objects of other clients that a bundle reads: the number of times that they were replaced, and
// whether they are being deleted or do not exist.
type readObjects struct {
	incarnation       int
	deleting, missing bool
}

// DeleteRead begins the deletion of the objects that a bundle only reads, as a client of the management cluster does.
func (s *Server) DeleteRead(id string) { s.change(id, func(r *Resource) { r.read.deleting = true }) }

// RemoveRead completes the deletion.
func (s *Server) RemoveRead(id string) {
	s.change(id, func(r *Resource) { r.read.deleting, r.read.missing = false, true })
}

// ReplaceRead creates the objects again that a bundle only reads. They have new UIDs.
func (s *Server) ReplaceRead(id string) {
	s.change(id, func(r *Resource) { r.read = readObjects{incarnation: r.read.incarnation + 1} })
}

// DropRead removes the manifests of the objects that a bundle only reads, as if a release had published it that reads none.
func (s *Server) DropRead(id string) {
	s.change(id, func(r *Resource) {
		var manifests []json.RawMessage
		var configs []workv1.ManifestConfigOption
		for i, config := range r.Configs {
			if config.UpdateStrategy == nil || config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly {
				manifests, configs = append(manifests, r.Manifests[i]), append(configs, config)
			}
		}
		r.Manifests, r.Configs = manifests, configs
	})
}

// change changes a resource and makes its agent report it.
func (s *Server) change(id string, change func(*Resource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.resources[id])
	s.changed = append(s.changed, id)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// Lose deletes a resource without a deletion event, as a restored backup does.
func (s *Server) Lose(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resources, id)
}

func reject(code codes.Code, reason maestroapi.Reason, format string, args ...any) error {
	st := status.New(code, fmt.Sprintf(format, args...))
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: string(reason), Domain: maestroapi.ErrorDomain}); err == nil {
		st = detailed
	}
	return st.Err()
}

// Publish implements the protocol.
func (s *Server) Publish(ctx context.Context, request *pbv1.PublishRequest) (*emptypb.Empty, error) {
	event := request.GetEvent()
	attribute := func(name string) string { return event.GetAttributes()[maestroapi.AttributePrefix+name].GetCeString() }
	s.mu.Lock()
	defer s.mu.Unlock()
	if event.GetType() == maestroapi.TypeStatusResync {
		return &emptypb.Empty{}, s.resync(event)
	}
	r := &Resource{ID: attribute(maestroapi.ExtensionResourceID), Source: event.GetSource(), Consumer: attribute(maestroapi.ExtensionClusterName), TraceParent: attribute(maestroapi.ExtensionTraceParent),
		Version: int64(event.GetAttributes()[maestroapi.AttributePrefix+maestroapi.ExtensionResourceVersion].GetCeInteger())}
	var data struct {
		Manifests       []json.RawMessage             `json:"manifests"`
		ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs"`
	}
	var meta struct {
		Name                string
		Labels, Annotations map[string]string
	}
	if err := json.Unmarshal(event.GetBinaryData(), &data); err != nil {
		return nil, reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "data: %v", err)
	}
	if err := json.Unmarshal([]byte(attribute(maestroapi.ExtensionMetadata)), &meta); err != nil {
		return nil, reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "metadata: %v", err)
	}
	r.Name, r.labels, r.Manifests, r.Configs = meta.Name, meta.Labels, data.Manifests, data.ManifestConfigs

	action := map[string]string{maestroapi.TypeCreate: "create", maestroapi.TypeUpdate: "update",
		maestroapi.TypeDelete: "delete"}[event.GetType()]
	var before, after error
	if s.fault != nil {
		before, after = s.fault(action, r)
	}
	if before != nil {
		return nil, before
	}
	if size := len(event.GetBinaryData()); size > maxBundle {
		return nil, reject(codes.InvalidArgument, maestroapi.ReasonTooLarge, "resource %s has %d bytes", r.ID, size)
	}
	if err := s.apply(action, r); err != nil {
		return nil, err
	}
	if known := s.resources[r.ID]; action == "delete" && known != nil {
		s.removeFinalizers(known.Name, meta.Annotations[maestroapi.AnnotationReleaseFinalizers])
	}
	if after != nil {
		return nil, after
	}
	if known := s.resources[r.ID]; known != nil {
		_ = grpc.SetHeader(ctx, metadata.Pairs(maestroapi.HeaderResourceVersion, strconv.FormatInt(known.Version, 10)))
	}
	return &emptypb.Empty{}, nil
}

func (s *Server) apply(action string, r *Resource) error {
	known := s.resources[r.ID]
	switch {
	case action == "":
		return reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "unknown type of event")
	case action != "delete" && len(r.Manifests) == 0:
		return reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "resource %s has no manifests", r.ID)
	case known != nil && known.Source != r.Source:
		return reject(codes.PermissionDenied, maestroapi.ReasonForeignSource, "resource %s belongs to another source", r.ID)
	case action == "delete" && known == nil:
		s.broadcastGone(r)
		return nil
	case action == "delete" && !known.Deleting && r.Version != 0 && r.Version != known.Version:
		return reject(codes.Aborted, maestroapi.ReasonVersionConflict, "resource %s is at version %d", r.ID, known.Version)
	case action == "delete":
		if !known.Deleting {
			known.Deleting = true
			s.record("delete", known)
		}
		return nil
	case known != nil && known.Deleting:
		return reject(codes.FailedPrecondition, maestroapi.ReasonBeingDeleted, "resource %s is being deleted", r.ID)
	case action == "create" && known != nil:
		if equalContent(known, r) {
			return nil
		}
		return reject(codes.AlreadyExists, maestroapi.ReasonAlreadyExists, "resource %s exists", r.ID)
	case action == "create" && !s.consumers[r.Consumer]:
		return reject(codes.FailedPrecondition, maestroapi.ReasonUnknownConsumer, "there is no consumer %q", r.Consumer)
	case action == "create":
		r.Version = s.tombstones[r.ID] + 1
		delete(s.tombstones, r.ID)
		s.resources[r.ID] = r
	case known == nil:
		return reject(codes.NotFound, maestroapi.ReasonNotFound, "there is no resource %s", r.ID)
	case r.Consumer != known.Consumer:
		return reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "resource %s is on consumer %q", r.ID, known.Consumer)
	case r.Version != 0 && r.Version != known.Version:
		return reject(codes.Aborted, maestroapi.ReasonVersionConflict, "resource %s is at version %d", r.ID, known.Version)
	case equalContent(known, r):
		return nil
	default:
		known.labels, known.Manifests, known.Configs = r.labels, r.Manifests, r.Configs
		known.Version++
	}
	s.record(action, r)
	return nil
}

func equalContent(a, b *Resource) bool {
	x, _ := json.Marshal([]any{a.Name, a.labels, a.Manifests, a.Configs})
	y, _ := json.Marshal([]any{b.Name, b.labels, b.Manifests, b.Configs})
	return string(x) == string(y)
}

func (s *Server) record(action string, r *Resource) {
	s.history = append(s.history, action+" "+r.Name)
	s.changed = append(s.changed, r.ID)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// heartbeats returns the last heartbeats of the agents. Those of silent agents stop.
func (s *Server) heartbeats() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for consumer := range s.consumers {
		if !s.silent[consumer] {
			s.beats[consumer] = time.Now().UTC()
		}
	}
	data, _ := json.Marshal(maestroapi.Heartbeat{Agents: s.beats})
	return data
}

// Subscribe implements the protocol.
func (s *Server) Subscribe(request *pbv1.SubscriptionRequest, stream pbv1.CloudEventService_SubscribeServer) error {
	events := make(chan *pbv1.CloudEvent, 65536)
	s.mu.Lock()
	s.subscribers[events] = request.GetSource()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.subscribers, events)
		s.mu.Unlock()
	}()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	heartbeat := time.NewTicker(time.Second)
	defer heartbeat.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-heartbeat.C:
			beat := &pbv1.CloudEvent{Id: uuid.NewString(), SpecVersion: "1.0", Type: maestroapi.TypeHeartbeat, Data: &pbv1.CloudEvent_BinaryData{BinaryData: s.heartbeats()}}
			if err := stream.Send(beat); err != nil {
				return err
			}
		case event := <-events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

func (s *Server) resync(event *pbv1.CloudEvent) error {
	var list struct {
		StatusHashes []struct{ ResourceID, StatusHash string } `json:"statusHashes"`
	}
	if err := json.Unmarshal(event.GetBinaryData(), &list); err != nil {
		return reject(codes.InvalidArgument, maestroapi.ReasonMalformed, "data: %v", err)
	}
	if len(list.StatusHashes) == 0 {
		for _, r := range s.resources {
			s.broadcast(r)
		}
	}
	for _, held := range list.StatusHashes {
		r := s.resources[held.ResourceID]
		switch {
		case r == nil:
			s.broadcastGone(&Resource{ID: held.ResourceID, Source: event.GetSource()})
		case r.hash != held.StatusHash:
			s.broadcast(r)
		}
	}
	return nil
}

func (s *Server) broadcastGone(r *Resource) {
	gone := &Resource{ID: r.ID, Source: r.Source, Consumer: r.Consumer, Version: r.Version, sequence: 0}
	gone.status, _ = json.Marshal(map[string]any{"conditions": []map[string]any{{"type": maestroapi.ConditionDeleted, "status": "True", "reason": "NotFound"}}})
	s.broadcast(gone)
}

func (s *Server) broadcast(r *Resource) {
	if r.status == nil {
		return
	}
	text := func(v string) *pbv1.CloudEventAttributeValue {
		return &pbv1.CloudEventAttributeValue{Attr: &pbv1.CloudEventAttributeValue_CeString{CeString: v}}
	}
	event := &pbv1.CloudEvent{Id: uuid.NewString(), Source: "agent-" + r.Consumer, SpecVersion: "1.0", Type: maestroapi.TypeStatusUpdate,
		Attributes: map[string]*pbv1.CloudEventAttributeValue{maestroapi.AttributePrefix + maestroapi.ExtensionResourceID: text(r.ID), maestroapi.AttributePrefix + maestroapi.ExtensionClusterName: text(r.Consumer),
			maestroapi.AttributePrefix + maestroapi.ExtensionOriginalSource: text(r.Source), maestroapi.AttributePrefix + maestroapi.ExtensionSequenceID: text(strconv.FormatInt(1_000_000+r.sequence, 10)), maestroapi.AttributePrefix + maestroapi.ExtensionStatusHash: text(r.hash),
			maestroapi.AttributePrefix + maestroapi.ExtensionResourceVersion: {Attr: &pbv1.CloudEventAttributeValue_CeInteger{CeInteger: int32(r.Version)}}},
		Data: &pbv1.CloudEvent_BinaryData{BinaryData: r.status}}
	for events, source := range s.subscribers {
		if source == r.Source {
			events <- event
		}
	}
}
