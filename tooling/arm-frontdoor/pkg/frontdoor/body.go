package frontdoor

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// statusClientClosedRequest is the status of a request whose caller closed the connection before the response. It is not
// registered with IANA; proxies use it in their logs.
const statusClientClosedRequest = 499

// incomingBody is the body of a request that is forwarded. It records why reading it failed, because the transport to the
// frontend reports a different error. It is safe for concurrent use by the transport and the error handler.
type incomingBody struct {
	io.ReadCloser
	// reading is held during a read.
	reading sync.Mutex
	err     atomic.Pointer[error]
}

// Read implements io.Reader.
func (b *incomingBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	n, err := b.ReadCloser.Read(p)
	// The transport closes the body when the frontend has responded.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.err.Store(&err)
	}
	return n, err
}

// awaitRead waits until no read is in progress. A read error of the connection cancels the context of the request before the read returns, so that the
// transport may have failed already when the error is recorded.
func (b *incomingBody) awaitRead() {
	b.reading.Lock()
	defer b.reading.Unlock()
}

// failure returns the response to a request whose body could not be read, or nil if reading it did not fail.
func (b *incomingBody) failure() *response {
	if err := b.err.Load(); err != nil {
		return unreadable(*err)
	}
	return nil
}

// unreadable returns the response to a request whose body could not be read: 408 if the caller sent it too slowly, else 400.
func unreadable(err error) *response {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newError(http.StatusRequestTimeout, "RequestTimeout", "The request's body was not received in time.")
	}
	return newError(http.StatusBadRequest, "InvalidRequestContent", "The request's body ended before its declared length.")
}
