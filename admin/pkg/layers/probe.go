package layers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Question asks a component whether it works. It returns nil if it does.
type Question func(ctx context.Context) error

// maxBody limits the bytes that are read of a response.
const maxBody = 16 << 10

// notReadyError reports that a component answered that it is not ready.
type notReadyError struct {
	text string
	// reasons holds the reason of each dependency that the component reports as not ready.
	reasons map[string]string
}

// Error implements error.
func (e *notReadyError) Error() string { return e.text }

// question returns the question for a target.
func (t *Target) question() (Question, error) {
	if t.PostgreSQL != "" {
		return func(ctx context.Context) error { return askPostgreSQL(ctx, t.PostgreSQL) }, nil
	}
	if _, err := t.client(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		client, err := t.client()
		if err != nil {
			return err
		}
		return askReady(ctx, client, t.Ready, t.Alive)
	}, nil
}

// client returns a client that trusts the authorities that CAFile has now.
func (t *Target) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		authorities, err := certfile.LoadRoots(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("component %s: caFile: %w", t.Name, err)
		}
		config.RootCAs = authorities.Pool()
	}
	return newClient(config), nil
}

// newClient returns a client that uses a new connection for each request, so that it never uses one of a previous process.
func newClient(config *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askReady requests the readiness endpoint and, at the same time, the endpoint that responds while the process runs.
func askReady(ctx context.Context, client *http.Client, ready, alive string) error {
	responds := make(chan error, 1)
	if alive != "" {
		go func() { _, _, err := get(ctx, client, alive); responds <- err }()
	}
	code, body, err := get(ctx, client, ready)
	if alive != "" {
		if aliveErr := <-responds; err != nil && aliveErr == nil && errors.Is(err, context.DeadlineExceeded) {
			return &notReadyError{text: "it runs, but its readiness check did not complete"}
		}
	}
	switch {
	case err != nil:
		return err
	case code == http.StatusOK:
		return nil
	}
	reasons, text := process.ParseNotReady(body)
	if text == "" {
		text = fmt.Sprintf("it responds with status %d", code)
	}
	return &notReadyError{text: text, reasons: reasons}
}

func get(ctx context.Context, client *http.Client, url string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	return response.StatusCode, body, err
}

// sslRequest is the first message of a PostgreSQL client that wants TLS. The server answers it with one byte before any
// authentication (PostgreSQL documentation, Message Formats).
var sslRequest = []byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}

func askPostgreSQL(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	answer := make([]byte, 1)
	if _, err = connection.Write(sslRequest); err == nil {
		_, err = io.ReadFull(connection, answer)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case answer[0] == 'N':
		return nil
	case answer[0] != 'S':
		return &notReadyError{text: "it rejects connections"}
	}
	// The server logs a failure if the connection ends before TLS is established. Nothing is sent afterwards, so any certificate will do.
	encrypted := tls.Client(connection, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	if err := encrypted.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The server has responded, so that also a reset of the connection does not mean that no connection is possible.
		return &notReadyError{text: "TLS cannot be established: " + reason(err)}
	}
	return encrypted.Close()
}

// HostedAPIServer asks the API server of a hosted cluster at its URL. Any HTTP response proves that it works. It sends no
// credentials and therefore accepts any certificate.
func HostedAPIServer(ctx context.Context, base string) error {
	client := newClient(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	_, _, err := get(ctx, client, strings.TrimSuffix(base, "/")+"/livez")
	return err
}

// Classify returns the state of a component and the reason from the error of its question.
func Classify(err error) (adminv1.ComponentState, string) {
	var answered *notReadyError
	var network net.Error
	switch {
	case err == nil:
		return adminv1.ComponentReady, ""
	case DiskFull(err.Error()):
		return adminv1.ComponentDiskFull, reason(err)
	case errors.As(err, &answered):
		return adminv1.ComponentNotReady, answered.text
	case isRefused(err):
		return adminv1.ComponentUnreachable, "no connection is possible"
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded, errors.As(err, &network) && network.Timeout():
		return adminv1.ComponentUnresponsive, "no response within " + Deadline.String()
	}
	return adminv1.ComponentNotReady, reason(err)
}

// reason returns the text of an error in one line of limited length.
func reason(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if characters := []rune(text); len(characters) > maxReason {
		text = string(characters[:maxReason]) + "…"
	}
	return text
}

// maxReason limits the characters of a reason.
const maxReason = 300

// isRefused reports whether no connection was possible.
func isRefused(err error) bool {
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "dial" && !operation.Timeout() {
		return true
	}
	return strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "connection reset")
}

// DiskFull reports whether the reason of a component states that a disk is full.
func DiskFull(text string) bool {
	lower := strings.ToLower(text)
	return slices.ContainsFunc([]string{"no space left on device", "disk full", "disk is full", "disk quota exceeded", "could not extend file"}, func(part string) bool {
		return strings.Contains(lower, part)
	})
}
