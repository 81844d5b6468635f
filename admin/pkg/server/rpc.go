package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// reservedFields are fields of Cluster Service's requests that no body may set: the path or the elevation determines them.
var reservedFields = []protoreflect.Name{"cluster_uid", "uid", "name", "actor"}

// rpcRequest decodes a body that is a request of Cluster Service's API in protobuf's JSON form. An empty body is an empty request.
func rpcRequest(rq *request, into proto.Message) error {
	content, err := io.ReadAll(http.MaxBytesReader(rq.w, rq.http.Body, maxBody))
	if err != nil {
		return apierror.New(apierror.InvalidResource, "The body is larger than %d bytes, or incomplete.", maxBody).WithCause(err)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(content, into); err != nil {
		text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
		if i := strings.Index(text, "): "); i >= 0 {
			text = text[i+3:]
		}
		return apierror.New(apierror.Invalid, "Invalid body: %s.", text).WithCause(err)
	}
	message := into.ProtoReflect()
	for _, name := range reservedFields {
		if field := message.Descriptor().Fields().ByName(name); field != nil && message.Has(field) {
			return apierror.InvalidFields([]apierror.Violation{{Field: field.JSONName(), Message: "Forbidden: the path and the caller's elevation determine it"}})
		}
	}
	return nil
}

// forwarded returns the handler of an action whose parameters are a request of Cluster Service's API. resolve returns the object of
// the action and sets it in the request.
func forwarded[R proto.Message](s *Server, resolve func(ctx context.Context, rq *request, r R) (database.AdminTarget, error)) func(context.Context, *request) (any, error) {
	return func(ctx context.Context, rq *request) (any, error) {
		var none R
		r := none.ProtoReflect().New().Interface().(R)
		if err := rpcRequest(rq, r); err != nil {
			return nil, err
		}
		target, err := resolve(ctx, rq, r)
		if err != nil {
			return nil, err
		}
		content, err := protojson.Marshal(r)
		if err != nil {
			return nil, err
		}
		return s.accept(ctx, rq, target, json.RawMessage(content))
	}
}

// clusterTarget returns a resolver of the cluster in the path.
func clusterTarget[R interface {
	proto.Message
	GetClusterUid() string
}](s *Server) func(ctx context.Context, rq *request, r R) (database.AdminTarget, error) {
	return func(ctx context.Context, rq *request, r R) (database.AdminTarget, error) {
		target, err := s.clusterInPath(ctx, rq)
		setField(r, "cluster_uid", target.ClusterUID)
		return target, err
	}
}

// pathTarget returns a resolver of an object that a wildcard of the path names. It sets the field of the request to its name.
func pathTarget[R proto.Message](kind, wildcard string, field protoreflect.Name) func(ctx context.Context, rq *request, r R) (database.AdminTarget, error) {
	return func(_ context.Context, rq *request, r R) (database.AdminTarget, error) {
		id := rq.http.PathValue(wildcard)
		setField(r, field, id)
		return database.AdminTarget{Kind: kind, ID: id}, nil
	}
}

func setField(r proto.Message, field protoreflect.Name, value string) {
	message := r.ProtoReflect()
	message.Set(message.Descriptor().Fields().ByName(field), protoreflect.ValueOfString(value))
}

// messageResponse returns the result of a call of Cluster Service as a response.
func messageResponse[M proto.Message](m M, err error) (any, error) {
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.Message[M]{Of: m}, nil
}
