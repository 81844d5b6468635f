package imagemirror

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/net/http2"

	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// classOf returns the class of the reason why an image was not copied. Content with a wrong digest, content that the source lacks, and a
// release without a valid signature have the class failed: another attempt would end in the same way.
func classOf(err error) action.Class {
	var response *transport.Error
	var refused *signature.Error
	switch {
	case errors.As(err, &refused):
		if refused.Unavailable {
			return action.Unavailable
		}
		return action.ClassFailed
	case errors.As(err, &response):
		switch response.StatusCode {
		case http.StatusInsufficientStorage: // a full registry stays full until someone acts
			return action.ClassFailed
		case http.StatusRequestTimeout:
			return action.Unavailable
		}
		return action.ClassOfStatus(response.StatusCode)
	case interrupted(err):
		return action.Unavailable
	}
	return action.ClassFailed
}

// interrupted reports whether a connection failed or ended before a response was complete. Every error of a request is a net.Error, also
// one of the content that was sent, so that type alone does not suffice.
func interrupted(err error) bool {
	var operation *net.OpError
	var lookup *net.DNSError
	var number syscall.Errno
	var stream http2.StreamError
	var late net.Error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
		return true
	case errors.As(err, &operation), errors.As(err, &lookup), errors.As(err, &stream):
		return true
	case errors.As(err, &number):
		return number == syscall.ECONNRESET || number == syscall.EPIPE || number == syscall.ECONNREFUSED
	}
	return errors.As(err, &late) && late.Timeout()
}
