package adminv1

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Message is a message of Cluster Service's API as it stands, in protobuf's JSON form: what Cluster Service learns to say,
// admin shows without being told.
type Message[T proto.Message] struct {
	// Of is never nil in what was decoded.
	Of T
}

// MarshalJSON implements json.Marshaler.
func (m Message[T]) MarshalJSON() ([]byte, error) { return protojson.Marshal(m.Of) }

// UnmarshalJSON implements json.Unmarshaler. Fields of other releases are passed over.
func (m *Message[T]) UnmarshalJSON(data []byte) error {
	m.Of = m.Of.ProtoReflect().New().Interface().(T)
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m.Of)
}

// MessageName is the full name of the message, also of one that holds none.
func (m Message[T]) MessageName() string { return string(m.Of.ProtoReflect().Descriptor().FullName()) }

// Messages wraps every message of a list.
func Messages[T proto.Message](list []T) []Message[T] {
	wrapped := make([]Message[T], len(list))
	for i, message := range list {
		wrapped[i] = Message[T]{message}
	}
	return wrapped
}

// Contents are the messages of a list.
func Contents[T proto.Message](list []Message[T]) []T {
	messages := make([]T, len(list))
	for i, wrapped := range list {
		messages[i] = wrapped.Of
	}
	return messages
}
