package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// readBody reads the body of a request that runs commands or gives access, and decides about it. The API server gets the bytes that were read.
func (h *Handler) readBody(ctx context.Context, x *exchange) error {
	content, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, policy.MaxReadBody))
	if err != nil {
		var large *http.MaxBytesError
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.As(err, &large):
			return tooLarge(large.Limit)
		}
		return apierror.New(apierror.Invalid, "The body of the request is not complete.").WithCause(err)
	}
	x.r.Body, x.r.ContentLength, x.r.TransferEncoding = io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
	x.content, err = policy.ReadBody(x.parsed, x.r.Header["Content-Type"], content, h.Clock.Now(), x.session.Deadline())
	return err
}

// maxName is the maximum length of the name of an object in Kubernetes.
const maxName = 253

// sendRecorded records what the body of a request creates, and sends the request to the API server when the recording is on the disk.
func (h *Handler) sendRecorded(ctx context.Context, x *exchange, send func() error) (failure error) {
	text, err := x.content.Text()
	if err != nil {
		return err
	}
	facts := x.facts()
	if len(x.content.Name) <= maxName { // API servers refuse others, and the recording has them
		facts.Pod = x.content.Name
	}
	recorded, err := h.Recordings.Start(facts, []string{x.parsed.Verb})
	if err != nil {
		return err
	}
	if err := recorded.Input(text); err != nil {
		recorded.Discard()
		return err
	}
	recorded.Begin()
	reason := "The API server has not answered."                            // the proxy panics if a response cannot be completed
	defer func() { _ = recorded.End(context.WithoutCancel(ctx), reason) }() // the store logs a failure, and what was sent is in the recording
	if failure = send(); failure != nil {
		reason = apierror.As(failure).Message
	} else {
		reason = fmt.Sprintf("The API server has answered with the status %d.", x.status)
	}
	return failure
}
