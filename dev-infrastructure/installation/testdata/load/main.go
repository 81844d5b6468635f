// Command load calls a service constantly from a pod, as its clients do: on connections that it keeps, and on a new connection for each call.
// The first argument is the service: maestro-server, frontend or admin. It serves GET /report with what it has called, and POST /stop, which ends the
// calls.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// interval is the time between the starts of two calls of one kind.
	interval = 100 * time.Millisecond
	// callTimeout bounds a call. A call that takes longer has failed.
	callTimeout = 10 * time.Second
	// maxFailures bounds the failures that are kept.
	maxFailures = 500
)

// call makes one call. Its error means that the call failed.
type call func(context.Context) error

// client is a client of a service.
type client interface {
	addFlags(*flag.FlagSet)
	// calls returns the calls by kind.
	calls() (map[string]call, error)
}

// report is the response to GET /report.
type report struct {
	// Succeeded and Failed count calls by kind. Succeeded has all kinds.
	Succeeded, Failed map[string]int
	// Failures describes the first failed calls.
	Failures []string
}

// recorder counts calls. It is safe for concurrent use.
type recorder struct {
	mu     sync.Mutex
	report report
}

func (r *recorder) add(kind string, began time.Time, err error) {
	took := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.report.Succeeded[kind]++
		return
	}
	r.report.Failed[kind]++
	if len(r.report.Failures) < maxFailures {
		r.report.Failures = append(r.report.Failures, fmt.Sprintf("%s %s after %s: %v", began.UTC().Format(time.RFC3339Nano), kind, took, err))
	}
}

// ServeHTTP writes the report.
func (r *recorder) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(w).Encode(r.report)
}

// repeat makes a call at each interval until stop ends. A call in progress is completed.
func repeat(stop context.Context, kind string, send call, to *recorder) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-stop.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		to.add(kind, began, send(ctx))
		cancel()
	}
}

// serve makes the calls and serves their report until SIGTERM.
func serve(calls map[string]call) error {
	terminated, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	calling, stop := context.WithCancel(terminated)
	defer stop()
	recorded := &recorder{report: report{Succeeded: map[string]int{}, Failed: map[string]int{}}}
	for kind := range calls {
		recorded.report.Succeeded[kind] = 0
	}
	var running sync.WaitGroup
	for kind, call := range calls {
		running.Go(func() { repeat(calling, kind, call, recorded) })
	}
	mux := http.NewServeMux()
	mux.Handle("GET /report", recorded)
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		stop()
		running.Wait()
		recorded.ServeHTTP(w, r)
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(terminated, func() { _ = server.Close() })()
	err := server.ListenAndServe()
	if terminated.Err() != nil {
		err = nil
	}
	stop()
	running.Wait()
	return err
}

func run(arguments []string) error {
	clients := map[string]client{"maestro-server": &maestroClient{}, "frontend": &frontendClient{}, "admin": &adminClient{}}
	if len(arguments) == 0 || clients[arguments[0]] == nil {
		return fmt.Errorf("the first argument must be one of %v", slices.Sorted(maps.Keys(clients)))
	}
	c, flags := clients[arguments[0]], flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	c.addFlags(flags)
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	calls, err := c.calls()
	if err != nil {
		return err
	}
	return serve(calls)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
