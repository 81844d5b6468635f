package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// maxConnectRequest is the most bytes of a request.
const maxConnectRequest = 8 << 10

// errConnectRequestTooLarge is the error about a request with more than maxConnectRequest bytes.
var errConnectRequestTooLarge = errors.New("the request is too large")

// connectRequest is a request to connect to a host.
type connectRequest struct {
	// Host is the host of the target, without brackets. It is what the client sent.
	Host string
	Port uint16
}

// readConnectRequest reads a request CONNECT of HTTP/1.1 to its empty line and leaves what follows in the reader. The caller limits the time. A request with a body, or with a target
// that is not host:port, is refused. The header Host has no meaning for CONNECT.
func readConnectRequest(reader *bufio.Reader) (connectRequest, error) {
	text, err := readConnectHeader(reader)
	if err != nil {
		return connectRequest{}, err
	}
	remaining := bytes.NewReader(text)
	buffered := bufio.NewReader(remaining)
	r, err := http.ReadRequest(buffered)
	switch {
	case err != nil:
		return connectRequest{}, fmt.Errorf("reading the request: %w", err)
	case buffered.Buffered()+remaining.Len() > 0:
		return connectRequest{}, errors.New("the lines of the request do not end with CR LF")
	case r.Method != http.MethodConnect:
		return connectRequest{}, errors.New("the method is not CONNECT")
	case r.ProtoMajor != 1:
		return connectRequest{}, errors.New("the version is not HTTP/1")
	case len(r.TransferEncoding) > 0 || r.ContentLength != 0 || r.Header.Get("Content-Length") != "":
		return connectRequest{}, errors.New("the request has a body")
	}
	host, number, err := net.SplitHostPort(r.RequestURI)
	if err != nil || strings.ContainsAny(host, "/@") {
		return connectRequest{}, errors.New("the target is not host:port")
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != number {
		return connectRequest{}, errors.New("the port of the target is not a number from 1 to 65535")
	}
	return connectRequest{Host: host, Port: uint16(port)}, nil
}

// readConnectHeader returns the lines of a request with the empty line at their end.
func readConnectHeader(reader *bufio.Reader) ([]byte, error) {
	var text []byte
	for !bytes.HasSuffix(text, []byte("\r\n\r\n")) {
		if len(text) == maxConnectRequest {
			return nil, errConnectRequestTooLarge
		}
		next, err := reader.ReadByte()
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		text = append(text, next)
	}
	return text, nil
}

// connectionEstablished is the response to a request that is permitted, before the bytes of the tunnel.
const connectionEstablished = "HTTP/1.1 200 Connection established\r\n\r\n"

// writeConnectError writes a response that refuses the request, and ends the connection of HTTP.
func writeConnectError(w io.Writer, status int, reason string) error {
	_, err := fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, http.StatusText(status), len(reason)+1, reason)
	return err
}
