// Package sourceapi is the CloudEvents gRPC service through which sources publish resources and hear of their statuses:
// io.cloudevents.v1.CloudEventService as the published Maestro serves it. A publish is answered once it is committed,
// and its refusals carry a gRPC code and a google.rpc.ErrorInfo that say why. A subscription gets every status from its
// start on; what came before is asked for with a status resync.
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
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/fanout"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Options of the service.
type Options struct {
	Store *store.Store
	Hub   *fanout.Hub
	// Wake is called with the consumer of each publish after its commit.
	Wake func(consumer string)
	// SourceID is the server's own name, under which it reports.
	SourceID string
	// Heartbeat is how often subscribers get a sign of life; 0 means 10 s.
	Heartbeat time.Duration
	Log       *slog.Logger
}

// Service implements the CloudEvents gRPC service.
type Service struct {
	pbv1.UnimplementedCloudEventServiceServer
	o Options
}

// New makes the service.
func New(o Options) *Service {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	return &Service{o: o}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(server *grpc.Server) { pbv1.RegisterCloudEventServiceServer(server, s) }

// Publish takes a request of a source in and answers once it is committed.
func (s *Service) Publish(ctx context.Context, request *pbv1.PublishRequest) (*emptypb.Empty, error) {
	err := s.publish(ctx, request)
	if fault := (*resource.Error)(nil); err != nil && !errors.As(err, &fault) && ctx.Err() == nil {
		s.o.Log.Error("publish failed", "event", request.GetEvent().GetId(), "type", request.GetEvent().GetType(), "error", err)
	}
	return &emptypb.Empty{}, Status(err)
}

func (s *Service) publish(ctx context.Context, request *pbv1.PublishRequest) error {
	if request.GetEvent() == nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "the request carries no event")
	}
	evt, err := binding.ToEvent(ctx, protocol.NewMessage(request.Event))
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "the event cannot be read: %v", err)
	}
	if err := evt.Validate(); err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "the event is not valid: %v", err)
	}
	action, err := event.ActionOf(evt)
	if err != nil {
		return err
	}
	if action == event.StatusResync {
		hashes, err := event.DecodeStatusResync(evt)
		if err == nil {
			err = s.resync(ctx, evt.Source(), hashes)
		}
		return err
	}
	if action != event.Create && action != event.Update && action != event.Delete {
		return resource.Errorf(maestroapi.ReasonMalformed, "sources do not publish events of type %s", evt.Type())
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
	if action == event.Delete {
		consumer, gone, err := s.o.Store.Delete(ctx, r.ID, r.Source, r.Version, resource.Released(r.Metadata))
		if err != nil {
			return 0, err
		}
		if gone {
			return 0, s.confirmGone(ctx, r)
		}
		s.woken(consumer)
		return 0, nil
	}
	if err := fits(ctx, r, s.o.SourceID); err != nil {
		return 0, err
	}
	if action == event.Create {
		version, err = s.o.Store.Create(ctx, r)
	} else {
		version, err = s.o.Store.Update(ctx, r)
	}
	if err == nil {
		s.woken(r.Consumer)
	}
	return version, err
}

// woken starts the delivery, on whichever replica serves the consumer.
func (s *Service) woken(consumer string) {
	s.o.Wake(consumer)
	s.o.Hub.Tell(store.News{Consumers: []string{consumer}})
}

// fits refuses at once what would have to be parked later.
func fits(ctx context.Context, r *resource.Resource, source string) error {
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
		return resource.Errorf(maestroapi.ReasonTooLarge, "resource %s makes a message of %d bytes; at most %d fit", r.ID, size, mqttlink.MaxMessageBytes)
	}
	return nil
}

// confirmGone tells a source that deletes what is gone already that it is: from the tombstone if there is one.
func (s *Service) confirmGone(ctx context.Context, r *resource.Resource) error {
	found, err := s.o.Store.Load(ctx, []string{r.ID})
	if err != nil {
		return err
	}
	for _, dead := range found {
		if dead.Source == r.Source && dead.Status != nil && dead.Status.Deleted {
			s.o.Hub.Resend(ctx, []*resource.Resource{dead})
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

// resync answers with the statuses that differ from those the source lists; with all when it lists none. Of what it
// lists and is gone it hears that it is gone.
func (s *Service) resync(ctx context.Context, source string, listed map[string]string) error {
	known, err := s.o.Store.HashesBySource(ctx, source)
	if err != nil {
		return err
	}
	var differing []string
	for id, hash := range known {
		if old, ok := listed[id]; len(listed) == 0 || ok && old != hash {
			differing = append(differing, id)
		}
	}
	for id := range listed {
		if _, ok := known[id]; !ok {
			differing = append(differing, id)
		}
	}
	for page := 500; len(differing) > 0; differing = differing[min(page, len(differing)):] {
		ids := differing[:min(page, len(differing))]
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
	return nil
}

// Subscribe streams statuses until the subscriber leaves, or does not keep up.
func (s *Service) Subscribe(request *pbv1.SubscriptionRequest, stream pbv1.CloudEventService_SubscribeServer) error {
	ctx := stream.Context()
	if request.Source == "" {
		return Status(resource.Errorf(maestroapi.ReasonMalformed, "the subscription names no source"))
	}
	if want := maestroapi.DataType; request.DataType != "" && request.DataType != want {
		return Status(resource.Errorf(maestroapi.ReasonMalformed, "data type %s is not served; %s is", request.DataType, want))
	}
	incoming, _ := metadata.FromIncomingContext(ctx)
	bare := len(incoming.Get(maestroapi.HeaderOmitManifests)) > 0 && incoming.Get(maestroapi.HeaderOmitManifests)[0] == "true"

	subscription := s.o.Hub.Subscribe(request.Source, request.ClusterName)
	defer subscription.Close()
	// The header tells the subscriber that nothing will be missed from here on, so that it may ask for a resync.
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
			beat := &pbv1.CloudEvent{SpecVersion: "1.0", Id: uuid.NewString(), Source: s.o.SourceID, Type: types.HeartbeatCloudEventsType}
			if err := stream.Send(beat); err != nil {
				return err
			}
		case <-subscription.Ready():
			waiting, err := subscription.Take(100)
			if err != nil {
				return status.Error(codes.ResourceExhausted, err.Error())
			}
			for _, r := range waiting {
				if err := s.sendStatus(ctx, stream, r, bare); err != nil {
					return err
				}
			}
		}
	}
}

func (s *Service) sendStatus(ctx context.Context, stream pbv1.CloudEventService_SubscribeServer, r *resource.Resource, bare bool) error {
	full := *r
	if !bare && !r.Status.Deleted {
		spec, err := s.spec(ctx, r.ID)
		if err != nil {
			return Status(err)
		}
		full.Spec = spec
	}
	evt, err := event.EncodeStatus(&full)
	if err != nil {
		s.o.Log.Error("status cannot be encoded; not sent", "resource", r.ID, "error", err)
		return nil
	}
	out := &pbv1.CloudEvent{}
	if err := protocol.WritePBMessage(ctx, binding.ToMessage(evt), out); err != nil {
		s.o.Log.Error("status cannot be encoded; not sent", "resource", r.ID, "error", err)
		return nil
	}
	return stream.Send(out)
}

// spec reads a bundle. While the database is away it waits: the subscription goes on where it was.
func (s *Service) spec(ctx context.Context, id string) (json.RawMessage, error) {
	for {
		spec, err := s.o.Store.Spec(ctx, id)
		if err == nil || !store.IsUnavailable(err) {
			return spec, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
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

// Status turns an error into what a source gets to see.
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
		return status.Error(codes.DeadlineExceeded, "the deadline passed before the database had answered")
	case store.IsUnavailable(err):
		return status.Error(codes.Unavailable, "the database cannot be reached; try again")
	}
	return status.Error(codes.Internal, "internal error")
}
