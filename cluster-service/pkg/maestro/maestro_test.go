package maestro

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

func TestClassify(t *testing.T) {
	withReason := func(code codes.Code, reason string) error {
		st, err := status.New(code, "m").WithDetails(&errdetails.ErrorInfo{Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	tests := map[string]struct {
		reason string
		err    error
		want   error
	}{
		"Version":     {"another version is the newest", withReason(codes.Aborted, "VERSION_CONFLICT"), ErrConflict},
		"Exists":      {"an earlier attempt had its effect", withReason(codes.AlreadyExists, "ALREADY_EXISTS"), ErrConflict},
		"Not found":   {"Maestro lost the bundle", withReason(codes.NotFound, "NOT_FOUND"), ErrNotFound},
		"Malformed":   {"it will never be accepted", withReason(codes.InvalidArgument, "MALFORMED"), ErrRefused},
		"No consumer": {"the consumer may be registered later", withReason(codes.FailedPrecondition, "UNKNOWN_CONSUMER"), nil},
		"Unknown":     {"the published server returns it for every error", status.Error(codes.Unknown, "failed to create resource"), nil},
		"Unavailable": {"the server is unavailable", status.Error(codes.Unavailable, "unavailable"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := classify(tc.err)
			for _, kind := range []error{ErrConflict, ErrNotFound, ErrRefused} {
				if errors.Is(got, kind) != (tc.want == kind) {
					t.Errorf("%v is %v, want %v: %s", tc.err, got, tc.want, tc.reason)
				}
			}
		})
	}
}

// TestErrorsDoNotQuoteManifests publishes manifests that cannot be encoded.
func TestErrorsDoNotQuoteManifests(t *testing.T) {
	_, err := bundleEvent("s", maestroapi.TypeCreate, &Bundle{ID: "i", Manifests: []json.RawMessage{json.RawMessage("{hunter2")}}, time.Now())
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// FuzzDecodeStatus decodes arbitrary events.
func FuzzDecodeStatus(f *testing.F) {
	seed, err := proto.Marshal(&pbv1.CloudEvent{Id: "1", Source: "agent", SpecVersion: "1.0", Type: maestroapi.TypeStatusUpdate, Attributes: map[string]*pbv1.CloudEventAttributeValue{
		maestroapi.AttributePrefix + maestroapi.ExtensionResourceID: text("0b5e7ad4-6d0c-4b0c-9f8f-3c1f6a2d7e10"), maestroapi.AttributePrefix + maestroapi.ExtensionSequenceID: text("12"), maestroapi.AttributePrefix + maestroapi.ExtensionResourceVersion: text("3")},
		Data: &pbv1.CloudEvent_BinaryData{BinaryData: []byte(`{}`)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, wire []byte) {
		event := &pbv1.CloudEvent{}
		if proto.Unmarshal(wire, event) != nil {
			return
		}
		e, ok, err := decodeStatus(event)
		if ok && err == nil && (e == nil || len(e.ResourceID) < 32) {
			t.Errorf("decoded %+v", e)
		}
	})
}
