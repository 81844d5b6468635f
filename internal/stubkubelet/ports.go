package stubkubelet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxBody bounds the body of a request that is returned.
const maxBody = 1 << 20

// servePort serves a connection to a declared port of a pod. A client whose first bytes are an HTTP request gets a description of the pod, or
// the body that it sends. Every other client gets its own bytes back.
func servePort(object *corev1.Pod, port int32, in io.Reader, out io.Writer) error {
	if !slices.Contains(declaredPorts(object), strconv.Itoa(int(port))) {
		return fmt.Errorf("no container of pod %s/%s declares TCP port %d: connection refused", object.Namespace, object.Name, port)
	}
	first := make([]byte, 4096)
	n, err := in.Read(first)
	first = first[:n]
	if err != nil && n == 0 {
		return nil // the client has closed the connection
	}
	all := io.MultiReader(bytes.NewReader(first), in)
	if !startsHTTP(first) {
		_, err := io.Copy(out, all)
		return ignoreEnd(err)
	}
	reader := bufio.NewReader(all)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return nil
		}
		response := respond(object, port, request)
		if err := response.Write(out); err != nil || response.Close {
			return ignoreEnd(err)
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return nil
		}
	}
}

// ignoreEnd returns nil for the end of a connection, which is no error of the port.
func ignoreEnd(err error) error {
	if err == errTooManyBytes {
		return err
	}
	return nil
}

// startsHTTP reports whether bytes are the begin of an HTTP/1 request.
func startsHTTP(first []byte) bool {
	method, _, found := bytes.Cut(first, []byte(" "))
	return found && slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}, string(method))
}

func respond(object *corev1.Pod, port int32, request *http.Request) *http.Response {
	status, body := http.StatusOK, fmt.Sprintf("hcpmesh: port %d of the simulated pod %s/%s\n%s %s\n", port, object.Namespace, object.Name, request.Method, request.URL.RequestURI())
	if request.ContentLength != 0 {
		sent, err := io.ReadAll(io.LimitReader(request.Body, maxBody+1))
		switch {
		case err != nil:
			status, body = http.StatusBadRequest, "hcpmesh: the body cannot be read\n"
		case len(sent) > maxBody:
			status, body = http.StatusRequestEntityTooLarge, fmt.Sprintf("hcpmesh: a body has at most %d bytes\n", maxBody)
		default:
			body = string(sent)
		}
	}
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: request, Close: request.Close || status != http.StatusOK,
		Header:        http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}
