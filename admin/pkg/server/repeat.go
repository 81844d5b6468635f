package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// maxKey is the maximum length of an idempotency key.
const maxKey = 128

// readIdempotencyKey derives the ID of the operation from the caller and the idempotency key, if the request has one, and the digest
// that identifies the request.
func (rq *request) readIdempotencyKey() error {
	keys := rq.http.Header.Values(adminv1.IdempotencyKey)
	if len(keys) == 0 {
		return nil
	}
	printable := strings.IndexFunc(keys[0], func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > maxKey || !printable {
		return apierror.New(apierror.InvalidParameter, "Invalid value: must be one key of 1 to %d printable ASCII characters.", maxKey).WithTarget(adminv1.IdempotencyKey)
	}
	content, err := io.ReadAll(http.MaxBytesReader(rq.w, rq.http.Body, maxBody))
	if err != nil {
		return apierror.New(apierror.InvalidResource, "The body is larger than %d bytes, or incomplete.", maxBody).WithCause(err)
	}
	rq.http.Body = io.NopCloser(bytes.NewReader(content))
	rq.operation = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "operation of %s\x00%s\x00%s", rq.caller.TenantID, rq.caller.ObjectID, keys[0])).String()
	digest := sha256.New()
	_, _ = fmt.Fprintf(digest, "%s\x00%s\x00", rq.http.Method, rq.http.URL.Path)
	_, _ = digest.Write(content)
	rq.digest = hex.EncodeToString(digest.Sum(nil))
	return nil
}

// previousOperation returns the operation that the same request created before; nil if there is none, or the request has no key.
// It is called before any validation, because a request that had its effect may be invalid now.
func (s *Server) previousOperation(ctx context.Context, rq *request) (any, error) {
	if rq.operation == "" {
		return nil, nil
	}
	item, err := s.Database.AdminOperations().Find(ctx, database.AdminOperationKey(rq.operation))
	if err != nil || item == nil || item.Removed != nil {
		return nil, err
	}
	if item.Value.RequestDigest != rq.digest {
		return nil, apierror.New(apierror.Conflict, "The key was used for another request, which created operation %s.", rq.operation).WithTarget(adminv1.IdempotencyKey)
	}
	return rq.accepted(&item.Value), nil
}
