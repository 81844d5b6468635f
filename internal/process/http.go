package process

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// The limits of all HTTP servers. Handlers have smaller ones for what they read and hijack.
const (
	// headerTimeout bounds the TLS handshake and the header of a request, bodyTimeout a request with its body, idleTimeout the wait for the
	// next request of a connection, and lingerTimeout the rest of a request that was refused.
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
	lingerTimeout = time.Second
	// writeTimeout bounds a call: the handler and the response.
	writeTimeout = 90 * time.Second
	maxHeader    = 64 << 10
	maxBody      = 16 << 20
	// maxConnections is the maximum of connections that are not hijacked, if the process may have the descriptors.
	maxConnections = 8192
)

// Traffic is what an HTTP server serves.
type Traffic int

const (
	// Calls are requests whose responses end within writeTimeout.
	Calls Traffic = iota
	// Streams are also responses without a limit of time, such as watches, and hijacked connections.
	Streams
	// Files are Streams and bodies of any size. The handler limits the size of each body, and extends the deadline for reading it.
	Files
)

// NewHTTPServer returns a server with the limits of its traffic. Each body must arrive within bodyTimeout; the context of a request of Streams
// does not end with that. Connections beyond the maximum are closed at once. Errors of connections are logged at level debug.
func NewHTTPServer(traffic Traffic, handler http.Handler, log *slog.Logger) *http.Server {
	server := &http.Server{Handler: limitBodies(traffic, handler), ConnState: limitConnections(), ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if traffic == Calls {
		server.WriteTimeout = writeTimeout
	}
	return server
}

// CloseUnread closes the connection of HTTP/1 after the response to a request that is refused, whose body the handler does not read. Without it,
// net/http waits until bodyTimeout for the rest. The rest that arrives within lingerTimeout is discarded: TCP would reset the connection, and the
// client would not see the response. CloseUnread must be called before the response.
func CloseUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout)) // the connection may be closed
}

// limitConnections returns a hook that closes new connections while there are too many. netutil.LimitListener would hide connections with TLS from
// the server.
func limitConnections() func(net.Conn, http.ConnState) {
	var open atomic.Int64
	most := int64(ConnectionLimit(maxConnections, 1))
	return func(connection net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > most {
				_ = connection.Close()
			}
		case http.StateHijacked, http.StateClosed:
			open.Add(-1)
		}
	}
}

func limitBodies(traffic Traffic, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			if traffic != Calls {
				arrived(w)
			}
			next.ServeHTTP(w, r)
			return
		}
		limited := *r // net/http must find its body in r, to close the connection in a way that the client sees the response
		if traffic != Calls {
			limited.Body = &arriving{ReadCloser: r.Body, w: w}
		}
		if traffic != Files {
			limited.Body = http.MaxBytesReader(w, limited.Body, maxBody)
		}
		next.ServeHTTP(w, &limited)
	})
}

// arriving is the body of a request whose context must not end with the deadline for reading: the server waits for the end of the connection with
// the same deadline.
type arriving struct {
	io.ReadCloser
	w http.ResponseWriter
}

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err == io.EOF {
		arrived(a.w)
	}
	return n, err
}

// arrived ends the deadline for reading a request whose body has arrived.
func arrived(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the connection may be closed
}
