package maestro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	publishTimeout = 10 * time.Second
	// heartbeatTimeout is the time without an event after which a subscription counts as broken. Heartbeats come every 10 s.
	heartbeatTimeout = 25 * time.Second
	// stableAfter is the duration of a subscription after which the next pause before a reconnect is the first one again.
	stableAfter = time.Minute
	// maxMessage is the maximum size of a status event. A server that includes the manifests may send 4 MiB.
	maxMessage     = 8 << 20
	resyncPage     = 5000
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = 5 * time.Second
)

// Client is the connection of one source to a Maestro server. Its methods are safe for concurrent use.
type Client struct {
	source     string
	conn       *grpc.ClientConn
	service    pbv1.CloudEventServiceClient
	subscribed atomic.Bool
	log        *slog.Logger
}

// NewClient returns a client that connects on its first call. Nil credentials mean plain text, for servers behind a mesh. Options are added to those of
// the connection.
func NewClient(address, source string, transport credentials.TransportCredentials, log *slog.Logger, options ...grpc.DialOption) (*Client, error) {
	if transport == nil {
		transport = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.Config{BaseDelay: firstReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastReconnect}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to Maestro: %w", err)
	}
	return &Client{source: source, conn: conn, service: pbv1.NewCloudEventServiceClient(conn), log: log}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ready returns an error while the server does not respond to requests or no status events are received. The subscription to a hung
// server ends only after heartbeatTimeout.
func (c *Client) Ready(ctx context.Context) error {
	if err := grpcserver.CheckHealth(ctx, c.conn); err != nil {
		return fmt.Errorf("asking the Maestro server: %w", err)
	}
	if !c.subscribed.Load() {
		return errors.New("there is no subscription to Maestro")
	}
	return nil
}

// Create publishes a new bundle and returns its version, or 0 if the server does not report it.
func (c *Client) Create(ctx context.Context, b *Bundle) (int64, error) {
	return c.publish(ctx, maestroapi.TypeCreate, b)
}

// Update publishes new content of a bundle and returns its version, or 0 if the server does not report it.
func (c *Client) Update(ctx context.Context, b *Bundle) (int64, error) {
	return c.publish(ctx, maestroapi.TypeUpdate, b)
}

// Delete requests the deletion of a bundle and of its objects. The deletion is complete when a status with the condition
// Deleted arrives.
func (c *Client) Delete(ctx context.Context, b *Bundle) error {
	_, err := c.publish(ctx, maestroapi.TypeDelete, b)
	return err
}

func (c *Client) publish(ctx context.Context, eventType string, b *Bundle) (int64, error) {
	event, err := bundleEvent(c.source, eventType, b, time.Now())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var header metadata.MD
	if _, err := c.service.Publish(ctx, &pbv1.PublishRequest{Event: event}, grpc.Header(&header)); err != nil {
		return 0, classify(err)
	}
	if values := header.Get(maestroapi.HeaderResourceVersion); len(values) == 1 {
		version, _ := strconv.ParseInt(values[0], 10, 64)
		return version, nil
	}
	return 0, nil
}

// classify maps an error of the server to the errors of this package, by reason if there is one and by code otherwise. The
// published server returns Unknown for every error; such a request is retried.
func classify(err error) error {
	s := status.Convert(err)
	var reason maestroapi.Reason
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason = maestroapi.Reason(info.GetReason())
		}
	}
	switch {
	case reason == maestroapi.ReasonAlreadyExists || reason == maestroapi.ReasonVersionConflict || s.Code() == codes.AlreadyExists || s.Code() == codes.Aborted:
		return fmt.Errorf("%w: %s", ErrConflict, s.Message())
	case reason == maestroapi.ReasonNotFound || s.Code() == codes.NotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, s.Message())
	case reason == maestroapi.ReasonMalformed || reason == maestroapi.ReasonTooLarge || reason == maestroapi.ReasonForeignSource || s.Code() == codes.InvalidArgument:
		return fmt.Errorf("%w: %s", ErrRefused, s.Message())
	}
	return fmt.Errorf("publish: %s: %s", s.Code(), s.Message())
}

// Held identifies the status of a bundle that a source holds.
type Held struct {
	ResourceID string `json:"resourceID"`
	StatusHash string `json:"statusHash"`
}

// Resync requests the status of every held bundle whose hash differs from the server's. The statuses arrive over the
// subscription. Without held bundles it requests all statuses of the source.
func (c *Client) Resync(ctx context.Context, held []Held) error {
	for first := true; first || len(held) > 0; first = false {
		page := held[:min(resyncPage, len(held))]
		held = held[len(page):]
		event := newEvent(c.source, maestroapi.TypeStatusResync, time.Now())
		event.Attributes[maestroapi.AttributePrefix+maestroapi.ExtensionClusterName] = text("")
		body, err := json.Marshal(struct {
			StatusHashes []Held `json:"statusHashes"`
		}{page})
		if err != nil {
			return err
		}
		event.Data = &pbv1.CloudEvent_BinaryData{BinaryData: body}
		if err := c.publishResync(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) publishResync(ctx context.Context, event *pbv1.CloudEvent) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := c.service.Publish(ctx, &pbv1.PublishRequest{Event: event}); err != nil {
		return fmt.Errorf("request statuses: %w", err)
	}
	return nil
}

// Subscriber receives what a subscription delivers. Its functions are called one at a time.
type Subscriber struct {
	// Started is called after each subscription, in which the caller requests missed statuses with Resync.
	Started func(ctx context.Context) error
	// Status is called for each status event, in order.
	Status func(*Event)
	// Heartbeats is called with the times of the last heartbeats of agents, by consumer; nil ignores them.
	Heartbeats func(last map[string]time.Time)
}

// Subscribe passes all events to a subscriber until ctx ends. It subscribes again when the stream breaks or has no heartbeats.
func (c *Client) Subscribe(ctx context.Context, to Subscriber) {
	pauses := backoff.New(firstReconnect, lastReconnect)
	for ctx.Err() == nil {
		began := time.Now()
		err := c.subscribe(ctx, to)
		c.subscribed.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > stableAfter {
			pauses.Reset()
		}
		pause := pauses.Next()
		c.log.Warn("subscription to Maestro ended", logkey.Error, err, logkey.RetryIn, pause.String())
		_ = backoff.Sleep(ctx, pause)
	}
}

func (c *Client) subscribe(ctx context.Context, to Subscriber) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(heartbeatTimeout, func() { cancel(errors.New("no heartbeat")) })
	defer alive.Stop()
	stream, err := c.service.Subscribe(metadata.AppendToOutgoingContext(ctx, maestroapi.HeaderOmitManifests, "true"),
		&pbv1.SubscriptionRequest{Source: c.source, DataType: maestroapi.DataType})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.settle(ctx, cancel, stream, to.Started)
	}()
	defer func() { cancel(nil); <-settled }()
	for {
		event, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("receive: %w", err)
		}
		alive.Reset(heartbeatTimeout)
		if event.GetType() == maestroapi.TypeHeartbeat {
			if last := decodeHeartbeats(event); len(last) > 0 && to.Heartbeats != nil {
				to.Heartbeats(last)
			}
			continue
		}
		decoded, ok, err := decodeStatus(event)
		switch {
		case err != nil:
			c.log.Warn("invalid event of Maestro ignored", logkey.Error, err, logkey.Key, event.GetId())
		case ok:
			to.Status(decoded)
		}
	}
}

// settle calls started when the server is certain to send every later status. Our server sends its header as soon as the
// subscription exists. The published server sends its header with the first event; its subscription exists long before the
// wait of one second ends.
func (c *Client) settle(ctx context.Context, cancel context.CancelCauseFunc, stream grpc.ClientStream, started func(ctx context.Context) error) {
	header := make(chan struct{})
	go func() {
		defer close(header)
		_, _ = stream.Header()
	}()
	select {
	case <-header:
	case <-time.After(time.Second):
	}
	if ctx.Err() == nil {
		if err := started(ctx); err != nil {
			cancel(fmt.Errorf("after the subscription: %w", err))
		} else {
			c.subscribed.Store(true)
		}
	}
	<-header // closed when the stream ends
}
