// Package sourceapi serves the CloudEvents gRPC service of sources, io.cloudevents.v1.CloudEventService, as the published
// Maestro does. Publish returns after the commit; a rejection has a gRPC code and a google.rpc.ErrorInfo. A subscription
// receives every status from its start on; a source requests earlier statuses with a status resync.
//
// A Hub sends statuses to the subscribers of one replica. Each has a queue that contains only the newest status of a
// resource, so a slow subscriber uses memory in proportion to its resources and delays no other. A subscriber that is too
// far behind is disconnected; it subscribes again and resyncs. The hub learns of statuses that other replicas stored from
// their notifications, and of lost notifications by reading the database.
package sourceapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/common"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protocol"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/types"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Options configure a Service.
type Options struct {
	Store *store.Store
	Hub   *Hub
	// Wake is called with the consumer of each publish after its commit.
	Wake func(consumer string)
	// SourceID is the name of the server in its own reports.
	SourceID string
	// Heartbeat is the interval of the heartbeats to subscribers; 0 means 10 s.
	Heartbeat time.Duration
	// Traces creates a span for each publish with a trace context; nil creates none.
	Traces *tracing.Tracing
	Log    *slog.Logger
}

// Service implements the CloudEvents gRPC service.
type Service struct {
	pbv1.UnimplementedCloudEventServiceServer
	o Options
}

// New returns a Service.
func New(o Options) *Service {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	if o.Traces == nil {
		o.Traces = tracing.Off()
	}
	return &Service{o: o}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(server *grpc.Server) { pbv1.RegisterCloudEventServiceServer(server, s) }

// Publish commits a request of a source.
func (s *Service) Publish(ctx context.Context, request *pbv1.PublishRequest) (*emptypb.Empty, error) {
	err := s.publish(ctx, request)
	if fault := (*resource.Error)(nil); err != nil && !errors.As(err, &fault) && ctx.Err() == nil {
		s.o.Log.ErrorContext(ctx, "publish failed", logkey.RequestID, request.GetEvent().GetId(), logkey.Type, request.GetEvent().GetType(), logkey.Error, err)
	}
	return &emptypb.Empty{}, Status(err)
}

func (s *Service) publish(ctx context.Context, request *pbv1.PublishRequest) error {
	if request.GetEvent() == nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "the request contains no event")
	}
	evt, err := binding.ToEvent(ctx, protocol.NewMessage(request.Event))
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "malformed event: %v", err)
	}
	if err := evt.Validate(); err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "invalid event: %v", err)
	}
	// The source of the request was authorized. Attributes and structured data can contain another one.
	if evt.Source() != request.Event.Source {
		return resource.Errorf(maestroapi.ReasonMalformed, "the event has two different sources")
	}
	action, err := event.ActionOf(evt)
	if err != nil {
		return err
	}
	if action == event.StatusResync {
		hashes, ignored, err := event.DecodeStatusResync(evt)
		if err == nil {
			err = s.resync(ctx, evt.Source(), hashes)
		}
		if malformed := ignored.Err(); err == nil && malformed != nil {
			err = resource.Errorf(maestroapi.ReasonMalformed, "the statuses are sent, but %v", malformed)
		}
		return err
	}
	if action != event.Create && action != event.Update && action != event.Delete {
		return resource.Errorf(maestroapi.ReasonMalformed, "sources cannot publish events of type %s", evt.Type())
	}
	r, err := event.DecodeSpec(evt, action)
	if err != nil {
		return err
	}
	version, err := s.apply(ctx, action, r)
	if err != nil {
		return err
	}
	if version > 0 {
		_ = grpc.SetHeader(ctx, metadata.Pairs(maestroapi.HeaderResourceVersion, strconv.FormatInt(version, 10)))
	}
	return nil
}

func (s *Service) apply(ctx context.Context, action event.Action, r *resource.Resource) (version int64, err error) {
	if r.TraceParent != "" {
		var span trace.Span
		ctx, span = s.o.Traces.Start(tracing.Continue(ctx, r.TraceParent), "store "+string(action), trace.WithAttributes(tracing.BundleID.String(r.ID), tracing.Consumer.String(r.Consumer)))
		defer func() { tracing.End(span, err) }()
	}
	if action == event.Delete {
		consumer, missing, err := s.o.Store.Delete(ctx, r.ID, r.Source, r.Version, resource.ReleaseAnnotations(r.Metadata), r.TraceParent)
		if err != nil {
			return 0, err
		}
		if missing {
			return 0, s.confirmGone(ctx, r)
		}
		s.wakeDelivery(consumer)
		return 0, nil
	}
	if err := checkSize(ctx, r, s.o.SourceID); err != nil {
		return 0, err
	}
	if action == event.Create {
		version, err = s.o.Store.Create(ctx, r)
	} else {
		version, err = s.o.Store.Update(ctx, r)
	}
	if err == nil {
		s.wakeDelivery(r.Consumer)
	}
	return version, err
}

// wakeDelivery starts the delivery on the replica that serves the consumer.
func (s *Service) wakeDelivery(consumer string) {
	s.o.Wake(consumer)
	s.o.Hub.Notify(store.Notification{Consumers: []string{consumer}})
}

// checkSize rejects a resource whose delivery would not fit into an MQTT message.
func checkSize(ctx context.Context, r *resource.Resource, source string) error {
	probe := *r
	probe.Version = 1
	evt, err := event.EncodeSpec(&probe, source, event.Create)
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "%v", err)
	}
	msg, err := mqttlink.Message(ctx, maestroapi.SourceEventsTopic(source, r.Consumer), evt)
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "%v", err)
	}
	if size := mqttlink.Size(msg); size > mqttlink.MaxMessageBytes {
		return resource.Errorf(maestroapi.ReasonTooLarge, "resource %s needs a message of %d bytes; the limit is %d", r.ID, size, mqttlink.MaxMessageBytes)
	}
	return nil
}

// confirmGone reports to a source that the resource that it deletes does not exist any more, from the tombstone if there is one.
func (s *Service) confirmGone(ctx context.Context, r *resource.Resource) error {
	found, err := s.o.Store.Load(ctx, []string{r.ID})
	if err != nil {
		return err
	}
	for _, deleted := range found {
		if deleted.Source == r.Source && deleted.Status != nil && deleted.Status.Deleted {
			s.o.Hub.Resend(ctx, []*resource.Resource{deleted})
			return nil
		}
	}
	absent, err := s.absent(r.ID, r.Source, r.Consumer, r.Version)
	if err != nil {
		return err
	}
	s.o.Hub.Resend(ctx, []*resource.Resource{absent})
	return nil
}

func (s *Service) absent(id, source, consumer string, version int64) (*resource.Resource, error) {
	r := &resource.Resource{ID: id, Source: source, Consumer: consumer, Version: version, DeletedAt: time.Now()}
	st, err := event.ServerStatus(r, s.o.SourceID, metav1.Condition{
		Type: common.ResourceDeleted, Status: metav1.ConditionTrue, Reason: "NotFound", Message: "there is no such resource",
	}, time.Now())
	r.Status = st
	return r, err
}

// resyncPage is the number of statuses of a resync that are read at a time.
const resyncPage = 500

// resync sends the statuses that differ from those that the source lists, or all if it lists none. For a listed resource that
// does not exist it sends a status with the condition Deleted.
func (s *Service) resync(ctx context.Context, source string, listed map[string]string) error {
	for after := ""; ; {
		ids, err := s.o.Store.Differing(ctx, source, listed, after, resyncPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		found, err := s.o.Store.Load(ctx, ids)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		send := found[:0]
		for _, r := range found {
			if r.Source == source {
				there[r.ID] = true
				send = append(send, r)
			}
		}
		for _, id := range ids {
			if there[id] {
				continue
			}
			r, err := s.absent(id, source, "", 0)
			if err != nil {
				return err
			}
			send = append(send, r)
		}
		s.o.Hub.Resend(ctx, send)
	}
}

// Subscribe sends statuses until the subscriber disconnects or does not keep up.
func (s *Service) Subscribe(request *pbv1.SubscriptionRequest, stream pbv1.CloudEventService_SubscribeServer) error {
	ctx := stream.Context()
	if request.Source == "" {
		return Status(resource.Errorf(maestroapi.ReasonMalformed, "the subscription names no source"))
	}
	if want := maestroapi.DataType; request.DataType != "" && request.DataType != want {
		return Status(resource.Errorf(maestroapi.ReasonMalformed, "data type %s is not supported; the supported type is %s", request.DataType, want))
	}
	incoming, _ := metadata.FromIncomingContext(ctx)
	omitManifests := len(incoming.Get(maestroapi.HeaderOmitManifests)) > 0 && incoming.Get(maestroapi.HeaderOmitManifests)[0] == "true"

	subscription := s.o.Hub.Subscribe(request.Source, request.ClusterName)
	defer subscription.Close()
	// After the header the subscriber receives every status, so it may request a resync.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	heartbeat := time.NewTicker(s.o.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat.C:
			if err := stream.Send(s.heartbeat(ctx)); err != nil {
				return err
			}
		case <-subscription.Ready():
			waiting, err := subscription.Take(100)
			if err != nil {
				return status.Error(codes.ResourceExhausted, err.Error())
			}
			for _, r := range waiting {
				if err := s.sendStatus(ctx, stream, r, omitManifests); err != nil {
					return err
				}
			}
		}
	}
}

// heartbeatTimeout bounds the reading of the agents' heartbeats, so that a hung database does not end subscriptions.
const heartbeatTimeout = 2 * time.Second

// heartbeat returns a heartbeat to a subscriber, with the last heartbeats of the agents if they can be read.
func (s *Service) heartbeat(ctx context.Context) *pbv1.CloudEvent {
	beat := &pbv1.CloudEvent{SpecVersion: "1.0", Id: uuid.NewString(), Source: s.o.SourceID, Type: types.HeartbeatCloudEventsType}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	last, err := s.o.Store.Heartbeats(ctx)
	if err == nil {
		var data []byte
		if data, err = event.EncodeAgentHeartbeats(last); err == nil {
			beat.Data = &pbv1.CloudEvent_BinaryData{BinaryData: data}
		}
	}
	if err != nil && ctx.Err() == nil {
		s.o.Log.WarnContext(ctx, "sending a heartbeat without those of the agents", logkey.Error, err)
	}
	return beat
}

func (s *Service) sendStatus(ctx context.Context, stream pbv1.CloudEventService_SubscribeServer, r *resource.Resource, omitManifests bool) error {
	full := *r
	if !omitManifests && !r.Status.Deleted {
		spec, err := s.spec(ctx, r.ID)
		if err != nil {
			return Status(err)
		}
		full.Spec = spec
	}
	evt, err := event.EncodeStatus(&full)
	if err != nil {
		s.o.Log.ErrorContext(ctx, "encoding a status failed", logkey.BundleID, r.ID, logkey.Error, err)
		return nil
	}
	out := &pbv1.CloudEvent{}
	if err := protocol.WritePBMessage(ctx, binding.ToMessage(evt), out); err != nil {
		s.o.Log.ErrorContext(ctx, "encoding a status failed", logkey.BundleID, r.ID, logkey.Error, err)
		return nil
	}
	return stream.Send(out)
}

// spec returns a bundle. It waits while the database is unavailable, so that the subscription continues afterwards.
func (s *Service) spec(ctx context.Context, id string) (json.RawMessage, error) {
	retries := backoff.New(50*time.Millisecond, time.Second)
	for {
		spec, err := s.o.Store.Spec(ctx, id)
		if err == nil || !store.IsUnavailable(err) {
			return spec, err
		}
		if err := retries.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// codeOf maps reasons to gRPC codes.
var codeOf = map[maestroapi.Reason]codes.Code{
	maestroapi.ReasonMalformed:       codes.InvalidArgument,
	maestroapi.ReasonTooLarge:        codes.InvalidArgument,
	maestroapi.ReasonUnknownConsumer: codes.FailedPrecondition,
	maestroapi.ReasonNotFound:        codes.NotFound,
	maestroapi.ReasonAlreadyExists:   codes.AlreadyExists,
	maestroapi.ReasonVersionConflict: codes.Aborted,
	maestroapi.ReasonBeingDeleted:    codes.FailedPrecondition,
	maestroapi.ReasonForeignSource:   codes.PermissionDenied,
}

// Status returns the gRPC error for err. It hides the text of internal errors.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if fault := (*resource.Error)(nil); errors.As(err, &fault) {
		st := status.New(codeOf[fault.Reason], fault.Message)
		if with, detailErr := st.WithDetails(&errdetails.ErrorInfo{Reason: string(fault.Reason), Domain: maestroapi.ErrorDomain}); detailErr == nil {
			st = with
		}
		return st.Err()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the request was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline passed before the database responded")
	case store.IsUnavailable(err):
		return status.Error(codes.Unavailable, "the database is unavailable; retry the request")
	}
	return status.Error(codes.Internal, "internal error")
}
