package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
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
func (h *Handler) sendRecorded(ctx context.Context, x *exchange, send func(context.Context) error) (failure error) {
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
	if failure = h.sendNoted(ctx, x, send); failure != nil {
		reason = apierror.As(failure).Message
	} else {
		reason = fmt.Sprintf("The API server has answered with the status %d.", x.status)
	}
	return failure
}

// answerTime is how long after the end of its session the API server may take to answer a request that gives access. The session's credential is then valid for
// longer than that.
const answerTime = 10 * time.Second

// sendNoted sends a request. One that gives access is noted in the document of the session before. The gateway must get the response to it, in order to remove
// at the end of the session what it has created: the request ends neither with its client nor at once with the session.
func (h *Handler) sendNoted(ctx context.Context, x *exchange, send func(context.Context) error) error {
	if !x.parsed.GivesAccess() || slices.Equal(x.r.URL.Query()["dryRun"], []string{metav1.DryRunAll}) {
		return send(ctx)
	}
	object := database.AccessObject{Request: x.id, Verb: x.parsed.Verb, Kind: x.parsed.Kind(), Namespace: x.parsed.Namespace, Name: x.content.Name[:min(len(x.content.Name), maxName)]}
	change, err := h.Sessions.Note(ctx, x.session, object, x.parsed.Path, x.content.Keep)
	if err != nil {
		return err
	}
	defer change.Done()
	x.change = change
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(x.session.Context(), func() { h.Clock.AfterFunc(answerTime, cancel) })
	defer stop()
	change.Sent()
	return send(detached)
}

// readChanged reads the response to a request that gives access, and notes the object in it.
func (x *exchange) readChanged(response *http.Response) error {
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, policy.MaxReadBody))
	if err != nil {
		return apierror.New(apierror.Unavailable, "The API server has not completed its response.").WithCause(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(content, &object) // an object without a UID is one of which nothing is known
	x.change.Answered(response.StatusCode, object.Name, string(object.UID))
	if response.StatusCode == http.StatusCreated && x.content.Keep == "" {
		response.Header.Add("Warning", `299 - "The session gateway removes the object at the end of the session. The annotation `+policy.KeepAnnotation+` with a reason keeps it."`)
	}
	return nil
}
