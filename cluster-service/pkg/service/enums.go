package service

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// RejectInvalidValues is a unary interceptor that refuses a request with an enumeration value that this release does not know, or with a text that
// PostgreSQL cannot store. proto3 passes such values on: without it a value of a newer client would have the effect of a default, and a text with a
// zero byte that of a failed database.
func RejectInvalidValues(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if m, ok := request.(proto.Message); ok {
		if err := apierror.InvalidFields(invalidValues(m.ProtoReflect(), "")); err != nil {
			return nil, apierror.ToGRPC(err, Domain)
		}
	}
	return handle(ctx, request)
}

// invalidValues returns a violation for each enumeration value of a message, at any depth, that its type does not define, and for each text with a zero
// byte. The zero value of an enumeration is always defined.
func invalidValues(m protoreflect.Message, prefix string) []apierror.Violation {
	var violations []apierror.Violation
	visit := func(field protoreflect.FieldDescriptor, value protoreflect.Value, path string) {
		switch field.Kind() {
		case protoreflect.EnumKind:
			if values := field.Enum().Values(); values.ByNumber(value.Enum()) == nil {
				violations = append(violations, apierror.Violation{Field: path,
					Message: fmt.Sprintf("Unsupported value: %d: supported values: %s", value.Enum(), strings.Join(supported(values), ", "))})
			}
		case protoreflect.MessageKind:
			violations = append(violations, invalidValues(value.Message(), path+".")...)
		case protoreflect.StringKind:
			if strings.Contains(value.String(), "\x00") {
				violations = append(violations, apierror.Violation{Field: path, Message: "Invalid value: must not contain a zero byte"})
			}
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		path := prefix + string(field.Name())
		switch {
		case field.IsList():
			for i := range value.List().Len() {
				visit(field, value.List().Get(i), fmt.Sprintf("%s[%d]", path, i))
			}
		case field.IsMap():
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				if field.MapKey().Kind() == protoreflect.StringKind {
					visit(field.MapKey(), key.Value(), path)
				}
				visit(field.MapValue(), value, fmt.Sprintf("%s[%s]", path, key))
				return true
			})
		default:
			visit(field, value, path)
		}
		return true
	})
	return violations
}

// supported returns the names of an enumeration's values without UNSPECIFIED and without the prefix that they share.
func supported(values protoreflect.EnumValueDescriptors) []string {
	prefix, _ := strings.CutSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	var names []string
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 {
			names = append(names, strings.TrimPrefix(string(v.Name()), prefix))
		}
	}
	return names
}
