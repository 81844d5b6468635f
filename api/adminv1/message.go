package adminv1

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Message wraps a message of Cluster Service's API and encodes it in protobuf's JSON form, so that new fields of Cluster Service
// appear in admin's API without a change of it.
type Message[T proto.Message] struct {
	// Of is the message. It is not nil after decoding.
	Of T
}

// MarshalJSON implements json.Marshaler.
func (m Message[T]) MarshalJSON() ([]byte, error) { return protojson.Marshal(m.Of) }

// UnmarshalJSON implements json.Unmarshaler. It ignores unknown fields of other releases.
func (m *Message[T]) UnmarshalJSON(data []byte) error {
	m.Of = m.Of.ProtoReflect().New().Interface().(T)
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m.Of)
}

// MessageName returns the full name of the message type, also if Of is nil.
func (m Message[T]) MessageName() string { return string(m.Of.ProtoReflect().Descriptor().FullName()) }

// Messages wraps the messages of a list.
func Messages[T proto.Message](list []T) []Message[T] {
	wrapped := make([]Message[T], len(list))
	for i, message := range list {
		wrapped[i] = Message[T]{message}
	}
	return wrapped
}

// Contents returns the messages of a list of wrappers.
func Contents[T proto.Message](list []Message[T]) []T {
	messages := make([]T, len(list))
	for i, wrapped := range list {
		messages[i] = wrapped.Of
	}
	return messages
}
