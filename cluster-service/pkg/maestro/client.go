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
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

const (
	publishTimeout = 10 * time.Second
	// silence is how long a subscription may be without even a heartbeat, which come every 10 s.
	silence = 25 * time.Second
	// maxMessage is the largest status event taken: a server that sends the manifests along may fill 4 MiB.
	maxMessage     = 8 << 20
	resyncPage     = 5000
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = 5 * time.Second
)

// Client talks to a Maestro server as one source.
type Client struct {
	source     string
	conn       *grpc.ClientConn
	service    pbv1.CloudEventServiceClient
	subscribed atomic.Bool
}

// NewClient prepares a connection; it does not connect. Nil credentials mean plain text, for servers behind a mesh.
func NewClient(address, source string, transport credentials.TransportCredentials) (*Client, error) {
	if transport == nil {
		transport = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: firstReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastReconnect}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to Maestro: %w", err)
	}
	return &Client{source: source, conn: conn, service: pbv1.NewCloudEventServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ready says whether statuses are being received.
func (c *Client) Ready(context.Context) error {
	if !c.subscribed.Load() {
		return errors.New("there is no subscription to Maestro")
	}
	return nil
}

// Create publishes a new bundle and returns its version; 0 when the server does not say.
func (c *Client) Create(ctx context.Context, b *Bundle) (int64, error) {
	return c.publish(ctx, maestroapi.TypeCreate, b)
}

// Update publishes new content of a bundle and returns its version; 0 when the server does not say.
func (c *Client) Update(ctx context.Context, b *Bundle) (int64, error) {
	return c.publish(ctx, maestroapi.TypeUpdate, b)
}

// Delete asks for the deletion of a bundle and everything it brought. It is complete when a status with the condition
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

// classify tells the refusals apart: by reason where the server gives one, else by code. The published server answers
// Unknown to everything, which is worth another try.
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
	return fmt.Errorf("publishing: %s: %s", s.Code(), s.Message())
}

// Held is what a source holds of a bundle's status.
type Held struct {
	ResourceID string `json:"resourceID"`
	StatusHash string `json:"statusHash"`
}

// Resync asks for the status of every held bundle whose hash differs; the answers come over the subscription. Without
// any it asks for all statuses of the source.
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
		return fmt.Errorf("asking for statuses: %w", err)
	}
	return nil
}

// Subscribe gives every status event to receive, one at a time and in order, until ctx is over; it subscribes again when
// the stream breaks or falls silent. After each (re)subscription started is called, from where the caller asks for what it
// missed with Resync.
func (c *Client) Subscribe(ctx context.Context, started func(ctx context.Context) error, receive func(*Event)) {
	delay := firstReconnect
	for ctx.Err() == nil {
		began := time.Now()
		err := c.subscribe(ctx, started, receive)
		c.subscribed.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			delay = firstReconnect
		}
		slog.Warn("the subscription to Maestro ended", "error", err, "retry_in", delay.String())
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(delay*2, lastReconnect)
	}
}

func (c *Client) subscribe(ctx context.Context, started func(ctx context.Context) error, receive func(*Event)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(silence, func() { cancel(errors.New("no heartbeat")) })
	defer alive.Stop()
	stream, err := c.service.Subscribe(metadata.AppendToOutgoingContext(ctx, maestroapi.HeaderOmitManifests, "true"),
		&pbv1.SubscriptionRequest{Source: c.source, DataType: maestroapi.DataType})
	if err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.settle(ctx, cancel, stream, started)
	}()
	defer func() { cancel(nil); <-settled }()
	for {
		event, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("receiving: %w", err)
		}
		alive.Reset(silence)
		if event.GetType() == maestroapi.TypeHeartbeat {
			continue
		}
		decoded, ok, err := decodeStatus(event)
		switch {
		case err != nil:
			slog.Warn("an event of Maestro was left out", "error", err, "event", event.GetId())
		case ok:
			receive(decoded)
		}
	}
}

// settle calls started once the server is certain to send every status from now on. A server that sends its header at once
// says so by it; the published one sends it with its first event, and has subscribed us long before the wait is over.
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
			cancel(fmt.Errorf("after subscribing: %w", err))
		} else {
			c.subscribed.Store(true)
		}
	}
	<-header // ends with the stream
}
