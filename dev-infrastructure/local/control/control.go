// Package control connects commands with a running supervisor: HTTP over a unix socket in the region's state folder,
// which only its owner can open. It contains the server's routes and the client; the actions are passed in.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// socketName is the name of the socket in the state folder.
const socketName = "control.sock"

// MaxSocketPath is the maximum length of a unix socket's address (unix(7): 108 bytes with the final zero).
const MaxSocketPath = 107

// ErrNotRunning is returned if no supervisor responds in a state folder.
var ErrNotRunning = errors.New("the region does not run")

// Actions are the functions that a supervisor runs on request.
type Actions struct {
	// Status returns the response of GET /status, which is encoded as JSON.
	Status func() any
	// Events returns the response of GET /events, which is encoded as JSON.
	Events func() any
	// Restart stops a process, starts it again and waits until it is ready.
	Restart func(ctx context.Context, name string) error
	// Kill sends a signal, given by name or number as in `KILL`, to a process.
	Kill func(name, signal string) error
	// RotateAuthority replaces the authority with a name. It calls note before each step.
	RotateAuthority func(ctx context.Context, name string, note func(step string)) error
	// Down begins to stop the region.
	Down func()
}

// Server serves requests until it is closed.
type Server struct {
	http   *http.Server
	socket string
	done   chan struct{}
}

// Serve listens in the state folder. The caller must hold the folder's lock, so that an existing socket belongs to a
// dead process.
func Serve(stateDir string, actions Actions) (*Server, error) {
	socket := filepath.Join(stateDir, socketName)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	address, release, err := shortAddress(stateDir)
	if err != nil {
		return nil, err
	}
	defer release()
	listener, err := net.Listen("unix", address)
	if err != nil {
		return nil, fmt.Errorf("listening for commands: %w", err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		// Its address may refer to another file by then; Close removes the socket.
		unix.SetUnlinkOnClose(false)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = listener.Close()
		return nil, err
	}
	server := &Server{
		http:   process.NewHTTPServer(process.Streams, routes(actions), slog.New(slog.DiscardHandler)),
		socket: socket,
		done:   make(chan struct{}),
	}
	go func() {
		defer close(server.done)
		_ = server.http.Serve(listener)
	}()
	return server, nil
}

// Close stops the server and removes the socket. Running requests have a second to finish.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
	_ = os.Remove(s.socket)
}

func routes(actions Actions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(actions.Status())
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(actions.Events())
	})
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, r *http.Request) {
		respond(w, actions.Restart(r.Context(), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, r *http.Request) {
		respond(w, actions.Kill(r.URL.Query().Get("name"), r.URL.Query().Get("signal")))
	})
	mux.HandleFunc("POST /rotate-authority", func(w http.ResponseWriter, r *http.Request) {
		rotateAuthority(w, r, actions)
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, nil)
		actions.Down()
	})
	return mux
}

// progress is a line of the response of POST /rotate-authority: a step, or the end of the replacement.
type progress struct {
	Step  string `json:"step,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// rotateAuthority responds with a line of JSON for each step, at its begin.
func rotateAuthority(w http.ResponseWriter, r *http.Request, actions Actions) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	write := func(line progress) {
		_ = json.NewEncoder(w).Encode(line)
		_ = http.NewResponseController(w).Flush()
	}
	err := actions.RotateAuthority(r.Context(), r.URL.Query().Get("name"), func(step string) {
		if step != "" {
			write(progress{Step: step})
		}
	})
	if err != nil {
		write(progress{Error: err.Error()})
		return
	}
	write(progress{Done: true})
}

func respond(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Client sends requests to the supervisor of a state folder.
type Client struct {
	http *http.Client
}

// NewClient returns a client of the region in stateDir. Calls fail with ErrNotRunning if it does not run.
func NewClient(stateDir string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			address, release, err := shortAddress(stateDir)
			if err != nil {
				return nil, fmt.Errorf("%w in %s", ErrNotRunning, stateDir)
			}
			defer release()
			connection, err := (&net.Dialer{}).DialContext(ctx, "unix", address)
			if err != nil {
				return nil, fmt.Errorf("%w in %s", ErrNotRunning, stateDir)
			}
			return connection, nil
		},
	}}}
}

// Status decodes the supervisor's status into result.
func (c *Client) Status(ctx context.Context, result any) error {
	body, err := c.call(ctx, http.MethodGet, "/status", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, result)
}

// Events decodes the events of the processes into result.
func (c *Client) Events(ctx context.Context, result any) error {
	body, err := c.call(ctx, http.MethodGet, "/events", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, result)
}

// Restart restarts a process and waits until it is ready.
func (c *Client) Restart(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodPost, "/restart", url.Values{"name": {name}})
	return err
}

// Kill sends a signal to a process.
func (c *Client) Kill(ctx context.Context, name, signal string) error {
	_, err := c.call(ctx, http.MethodPost, "/kill", url.Values{"name": {name}, "signal": {signal}})
	return err
}

// RotateAuthority replaces the authority with a name, and returns when no process uses the previous one. It calls note at the begin of each
// step.
func (c *Client) RotateAuthority(ctx context.Context, name string, note func(step string)) error {
	response, err := c.send(ctx, http.MethodPost, "/rotate-authority", url.Values{"name": {name}})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := json.NewDecoder(response.Body)
	for {
		var line progress
		err := lines.Decode(&line)
		switch {
		case err != nil:
			return fmt.Errorf("the region stopped before the authority was replaced: %w", err)
		case line.Error != "":
			return errors.New(line.Error)
		case line.Done:
			return nil
		}
		note(line.Step)
	}
}

// Down requests that the region stops. It returns before that is done.
func (c *Client) Down(ctx context.Context) error {
	_, err := c.call(ctx, http.MethodPost, "/down", nil)
	return err
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	response, err := c.send(ctx, method, path, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// send sends a request. The caller must close the body of the response.
func (c *Client) send(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://region"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		var urlError *url.Error
		if errors.As(err, &urlError) {
			err = urlError.Err
		}
		return nil, err
	}
	if response.StatusCode < 400 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return nil, errors.New(strings.TrimSpace(string(body)))
}

// shortAddress returns an address of the socket that is short enough for any path of the folder: it uses a descriptor
// of the folder, which must stay open until release is called.
func shortAddress(stateDir string) (address string, release func(), err error) {
	path := filepath.Join(stateDir, socketName)
	if len(path) <= MaxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(stateDir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName), func() { _ = dir.Close() }, nil
}
