package process

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
)

// serveProfiles serves profiles below /debug/pprof/ (net/http/pprof) on a Unix socket that only the user of the process can use.
// Profiles show the code and memory of the process, and recording them costs time, so they are not part of the ops address.
func serveProfiles(socket string, log *slog.Logger) (*opsServer, error) {
	if err := removeStale(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	// The client chooses the duration of a profile.
	profiling := &opsServer{done: make(chan struct{}), server: NewHTTPServer(Streams, mux, log)}
	profiling.serve(listener)
	return profiling, nil
}

// removeStale removes the socket of a process that was killed. It returns an error for any other file, and for the socket of a running
// process.
func removeStale(socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", socket)
	}
	if connection, err := net.Dial("unix", socket); err == nil {
		_ = connection.Close()
		return fmt.Errorf("%s is in use by another process", socket)
	}
	return os.Remove(socket)
}
