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

// RejectUnknownEnums is a unary interceptor that refuses a request with an enumeration value that this release does not know.
// proto3 passes such values on, so without it a value of a newer client would have the effect of a default.
func RejectUnknownEnums(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if m, ok := request.(proto.Message); ok {
		if err := apierror.InvalidFields(unknownEnums(m.ProtoReflect(), "")); err != nil {
			return nil, apierror.ToGRPC(err, Domain)
		}
	}
	return handle(ctx, request)
}

// unknownEnums returns a violation for each enumeration value of a message, at any depth, that its type does not define. The
// zero value is always defined.
func unknownEnums(m protoreflect.Message, prefix string) []apierror.Violation {
	var violations []apierror.Violation
	visit := func(field protoreflect.FieldDescriptor, value protoreflect.Value, path string) {
		switch field.Kind() {
		case protoreflect.EnumKind:
			if values := field.Enum().Values(); values.ByNumber(value.Enum()) == nil {
				violations = append(violations, apierror.Violation{Field: path,
					Message: fmt.Sprintf("Unsupported value: %d: supported values: %s", value.Enum(), strings.Join(supported(values), ", "))})
			}
		case protoreflect.MessageKind:
			violations = append(violations, unknownEnums(value.Message(), path+".")...)
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
