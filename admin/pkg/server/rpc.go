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

// requestCheck rejects a request of Cluster Service's API that admin does not forward.
type requestCheck func(ctx context.Context, rq *request, r proto.Message) error

// forwarded returns the handler of an action whose parameters are a request of Cluster Service's API. check may be nil.
func (s *Server) forwarded(name string, check requestCheck) handler {
	action := adminv1.FindAction(name)
	return func(ctx context.Context, rq *request) (any, error) {
		r := action.RPC.New()
		if err := rpcRequest(rq, r); err != nil {
			return nil, err
		}
		if check != nil {
			if err := check(ctx, rq, r); err != nil {
				return nil, err
			}
		}
		target, err := s.targetInPath(ctx, rq, adminv1.Wildcards(action.Path)[0])
		if err != nil {
			return nil, err
		}
		setIdentity(r, target.ID)
		content, err := protojson.Marshal(r)
		if err != nil {
			return nil, err
		}
		return s.accept(ctx, rq, target, json.RawMessage(content))
	}
}

// targetKinds are the kinds of objects that have no cluster, by the wildcards of their paths.
var targetKinds = map[string]string{"upgrade": "upgrade", "policy": "upgradePolicy", "shard": adminv1.TargetShard, "orphan": "azureOrphan"}

// targetInPath returns the object that a wildcard of the path names.
func (s *Server) targetInPath(ctx context.Context, rq *request, wildcard string) (database.AdminTarget, error) {
	if wildcard == "cluster" {
		return s.clusterInPath(ctx, rq)
	}
	return database.AdminTarget{Kind: targetKinds[wildcard], ID: rq.http.PathValue(wildcard)}, nil
}

// setIdentity sets the object of a request of Cluster Service. The UID of a request that has the UID of a cluster, too, is that of the request.
func setIdentity(r proto.Message, id string) {
	message := r.ProtoReflect()
	for _, name := range []protoreflect.Name{"cluster_uid", "uid", "name"} {
		if field := message.Descriptor().Fields().ByName(name); field != nil {
			message.Set(field, protoreflect.ValueOfString(id))
			return
		}
	}
}

// messageResponse returns the result of a call of Cluster Service as a response.
func messageResponse[M proto.Message](m M, err error) (any, error) {
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.Message[M]{Of: m}, nil
}
