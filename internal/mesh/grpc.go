package mesh

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// ServerOptions returns the options of a gRPC server with the transport: its credentials, the interceptors that
// authorize each call before any other interceptor, the age of connections, and the limit of the streams of a workload. gRPC itself refuses methods that
// the server does not have.
func (a *Authorizer) ServerOptions(transport Transport) []grpc.ServerOption {
	return append(transport.serverOptions(a),
		grpc.ChainUnaryInterceptor(a.unary), grpc.ChainStreamInterceptor(a.stream, newStreamLimit().stream))
}

// unary is a unary interceptor that authorizes a call.
func (a *Authorizer) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, condition, err := a.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if !condition.InResponse {
		if ctx, err = a.checkRequest(ctx, info.FullMethod, condition, request); err != nil {
			return nil, err
		}
		return handle(ctx, request)
	}
	response, err := handle(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := a.check(ctx, info.FullMethod, condition, response); err != nil {
		return nil, err
	}
	return response, nil
}

// stream is a stream interceptor that authorizes a call, and checks each message of it.
func (a *Authorizer) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, condition, err := a.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if condition.Intent {
		// An intent is for one request.
		return a.refuseCall(ctx, info.FullMethod, "", a.denied(ClientPeer(ctx), info.FullMethod, " as a stream"))
	}
	return handle(server, &authorizedStream{ServerStream: stream, ctx: ctx, authorizer: a, method: info.FullMethod, condition: condition})
}

// authorizedStream is a stream whose messages comply with a condition.
type authorizedStream struct {
	grpc.ServerStream
	ctx        context.Context
	authorizer *Authorizer
	method     string
	condition  Condition
}

// Context implements grpc.ServerStream.
func (s *authorizedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *authorizedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil || s.condition.InResponse {
		return err
	}
	return s.authorizer.check(s.ctx, s.method, s.condition, message)
}

// SendMsg implements grpc.ServerStream.
func (s *authorizedStream) SendMsg(message any) error {
	if s.condition.InResponse {
		if err := s.authorizer.check(s.ctx, s.method, s.condition, message); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(message)
}

// admit returns the context of a call with the identity of the caller, and the condition of its grant.
func (a *Authorizer) admit(ctx context.Context, method string) (context.Context, Condition, error) {
	id, err := a.grpcPeer(ctx)
	if err != nil {
		return nil, Condition{}, apierror.ToGRPC(a.refuseCaller(ctx, Refusal{Client: id.Peer, Method: method, Err: err}), errorDomain)
	}
	condition, err := a.condition(GRPC, method, id.Peer)
	if err != nil {
		a.audit(ctx, Refusal{Client: id.Peer, Method: method, Err: err})
		return nil, Condition{}, apierror.ToGRPC(err, errorDomain)
	}
	return ContextWithPeer(ctx, id), condition, nil
}

// checkRequest returns an error if a request does not comply with a condition, and otherwise the context of the call, with the
// intent if it carries one.
func (a *Authorizer) checkRequest(ctx context.Context, method string, condition Condition, request any) (context.Context, error) {
	message, ok := request.(proto.Message)
	switch {
	case condition.Absent != "" && (!ok || has(message.ProtoReflect(), condition.Absent)):
		return nil, a.refuseCall(ctx, method, "", a.denied(ClientPeer(ctx), method, " with the field "+condition.Absent))
	case !condition.Intent:
		return ctx, a.check(ctx, method, condition, request)
	case !ok || a.intents == nil:
		return nil, a.refuseCall(ctx, method, "", a.denied(ClientPeer(ctx), method, ""))
	}
	carried, required := a.intents.CarriesIntent(ctx), condition.Field == "" || !condition.permits(message)
	switch {
	case !carried && required:
		return nil, a.refuseCall(ctx, method, "", a.denied(ClientPeer(ctx), method, condition.limit()))
	case !carried:
		return ctx, nil
	}
	verified, engineer, err := a.intents.VerifyIntent(ctx, method, message)
	if err != nil {
		return nil, a.refuseCall(ctx, method, engineer, err)
	}
	return verified, nil
}

// refuseCall logs an audit record of a refused call and returns its error in the form of gRPC. engineer is the person who asked
// for the call, if that is proven.
func (a *Authorizer) refuseCall(ctx context.Context, method, engineer string, err error) error {
	a.audit(ctx, Refusal{Client: ClientPeer(ctx), Method: method, Engineer: engineer, Err: err})
	return apierror.ToGRPC(err, errorDomain)
}

// check returns an error if a message does not comply with a condition.
func (a *Authorizer) check(ctx context.Context, method string, condition Condition, message any) error {
	if condition.Field == "" {
		return nil
	}
	if m, ok := message.(proto.Message); ok && condition.permits(m) {
		return nil
	}
	return a.refuseCall(ctx, method, "", a.denied(ClientPeer(ctx), method, condition.limit()))
}

// has reports whether a message has a field, or does not have a field of this name at all.
func has(m protoreflect.Message, name string) bool {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	return field == nil || m.Has(field)
}

// permits reports whether the field of the condition has a permitted value in a message.
func (c Condition) permits(message proto.Message) bool {
	return slices.Contains(c.Values, fieldText(message.ProtoReflect(), c.Field))
}

// fieldText returns the value of a string or the name of an enumeration value. It returns "" for a field that the message does
// not have, and for an enumeration value without a name.
func fieldText(m protoreflect.Message, path string) string {
	for {
		name, rest, nested := strings.Cut(path, ".")
		field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch {
		case field == nil || field.IsList() || field.IsMap():
			return ""
		case nested && field.Kind() == protoreflect.MessageKind:
			m, path = m.Get(field).Message(), rest
			continue
		case nested:
			return ""
		case field.Kind() == protoreflect.StringKind:
			return m.Get(field).String()
		case field.Kind() == protoreflect.EnumKind:
			if value := field.Enum().Values().ByNumber(m.Get(field).Enum()); value != nil {
				return string(value.Name())
			}
		}
		return ""
	}
}

// grpcPeer returns the identity of the caller: that in its certificate, or behind a sidecar that in the metadata of the call.
func (a *Authorizer) grpcPeer(ctx context.Context) (ID, error) {
	if p, ok := peer.FromContext(ctx); ok {
		switch info := p.AuthInfo.(type) {
		case credentials.TLSInfo:
			if id, err := PeerOf(info.State); err == nil {
				return id, ended(info.State)
			}
		case sidecarInfo:
			return info.sidecar.client(info.from, metadata.ValueFromIncomingContext(ctx, ClientCertHeader), a.clients)
		}
	}
	return ID{}, errNoIdentity("The connection has no identity.")
}
