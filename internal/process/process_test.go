package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// childVariable is the environment variable that makes the test binary run one of the programs below.
const childVariable = "HCPMESH_PROCESS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "serve":
		Run("child", Options{OpsListen: "127.0.0.1:0", LogLevel: "info"}, func(ctx context.Context, _ *Process) error {
			os.Stdout.WriteString("running\n")
			<-ctx.Done()
			return ctx.Err()
		})
	case "drain":
		drain, err := time.ParseDuration(os.Args[1])
		if err != nil {
			panic(err)
		}
		Run("child", Options{LogLevel: "info", Drain: drain}, serveUntilDrained)
	case "fail":
		Run("child", Options{LogLevel: "info"}, func(context.Context, *Process) error { return errors.New("no luck") })
	case "parse":
		flags := flag.NewFlagSet("child", flag.ExitOnError)
		listen := flags.String("listen", "", "`address`")
		Parse(flags, os.Args[1:], func() error { return Required("listen", *listen) })
		os.Exit(0)
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"=orphan")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		_ = child.Wait()
		os.Exit(0)
	case "orphan":
		Run("child", Options{LogLevel: "info", DieWithParent: true}, func(ctx context.Context, _ *Process) error {
			os.Stdout.WriteString("running\n")
			<-ctx.Done()
			return nil
		})
	}
	os.Exit(leaktest.Check(m.Run()))
}

func child(t *testing.T, role string, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), childVariable+"="+role)
	return command
}

// awaitRunning reads the line that the child prints when it is running.
func awaitRunning(t *testing.T, stdout io.Reader) {
	t.Helper()
	line := make([]byte, len("running\n"))
	if _, err := io.ReadFull(stdout, line); err != nil || string(line) != "running\n" {
		t.Fatalf("the child did not start: %q, %v", line, err)
	}
}

func TestSIGTERMEndsAProcessWithoutError(t *testing.T) {
	command := child(t, "serve")
	stdout := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	awaitRunning(t, stdout)
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	if err := command.Wait(); err != nil {
		t.Errorf("terminated with %v after SIGTERM", err)
	}
}

func TestFailureIsLoggedAndExitsWithOne(t *testing.T) {
	command := child(t, "fail")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err := command.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("exited with %v", err)
	}
	var line map[string]any
	if err := json.Unmarshal(stderr.Bytes(), &line); err != nil || line["error"] != "no luck" || line["process"] != "child" {
		t.Errorf("the log does not contain the error: %q", stderr.String())
	}
}

func TestInvalidFlagsAreNamed(t *testing.T) {
	cases := map[string]struct {
		arguments []string
		names     string
	}{
		"Unknown":  {[]string{"--listen", "x", "--lisen", "y"}, "lisen"},
		"Missing":  {nil, "--listen is required"},
		"LeftOver": {[]string{"--listen", "x", "serve"}, `"serve"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			command := child(t, "parse", c.arguments...)
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(output), c.names) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

func TestChildTerminatesWithItsKilledParent(t *testing.T) {
	command := child(t, "parent")
	stdout := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	awaitRunning(t, stdout)
	must.Do(t, command.Process.Kill())
	// The grandchild has the other end of the pipe: end of file means that it has terminated.
	must.Get(io.ReadAll(stdout))(t)
	_ = command.Wait()
}

func TestReadiness(t *testing.T) {
	p := New("test", slog.New(slog.DiscardHandler))
	server := httptest.NewServer(p.OpsHandler())
	defer server.Close()
	readyz := func() (int, Readiness) {
		response := must.Get(http.Get(server.URL + "/readyz"))(t)
		defer response.Body.Close()
		var body Readiness
		must.Do(t, json.NewDecoder(response.Body).Decode(&body))
		return response.StatusCode, body
	}

	p.Ready("postgres", func(context.Context) error { return errors.New("connection refused") })
	p.Ready("maestro", func(context.Context) error { return nil })
	status, body := readyz()
	want := Readiness{NotReady: map[string]string{"postgres": "connection refused"}, Dependencies: []string{"maestro", "postgres"}}
	if diff := cmp.Diff(want, body); status != http.StatusServiceUnavailable || diff != "" {
		t.Errorf("status %d, body (-want +got):\n%s", status, diff)
	}

	p.Ready("postgres", func(context.Context) error { return nil })
	status, body = readyz()
	if status != http.StatusOK || !body.Ready {
		t.Errorf("status %d, body %+v", status, body)
	}
}

func TestUnresponsiveDependencyIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("test", slog.New(slog.DiscardHandler))
		p.Ready("cosmos", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("reading: %w", ctx.Err()) })
		p.Ready("maestro", func(context.Context) error { return nil })
		want := Readiness{NotReady: map[string]string{"cosmos": "does not respond within 2s"}, Dependencies: []string{"cosmos", "maestro"}}
		if diff := cmp.Diff(want, p.CheckReadiness(t.Context())); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestCheckThatDoesNotReturn checks that /readyz responds in time despite a check that ignores its context, and that repeated
// requests do not run it again beside the one in progress.
func TestCheckThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("test", slog.New(slog.DiscardHandler))
		var runs atomic.Int32
		release := make(chan struct{})
		p.Ready("disk", func(context.Context) error { runs.Add(1); <-release; return nil })
		for range 3 {
			began := time.Now()
			got := p.CheckReadiness(t.Context())
			if got.Ready || got.NotReady["disk"] == "" || time.Since(began) != checkTimeout {
				t.Errorf("%+v after %s", got, time.Since(began))
			}
		}
		if runs.Load() != 1 {
			t.Errorf("the check runs %d times at once", runs.Load())
		}
		close(release)
		synctest.Wait()
		if got := p.CheckReadiness(t.Context()); !got.Ready || runs.Load() != 2 {
			t.Errorf("%+v after %d runs", got, runs.Load())
		}
	})
}

func TestOpsAddressInUseNamesTheFlag(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = runUntilSignal("test", Options{OpsListen: listener.Addr().String(), LogLevel: "info"}, func(context.Context, *Process) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "--ops-listen") {
		t.Errorf("got %v", err)
	}
}

func TestVersionDescribesTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := httptest.NewRecorder()
		New("frontend", slog.Default()).OpsHandler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/version", nil))
		var got Version
		must.Do(t, json.Unmarshal(recorder.Body.Bytes(), &got))
		// Under synctest the clock always starts at the same time.
		want := Version{Process: "frontend", Go: runtime.Version(), StartTime: time.Now().UTC()}
		got.Revision, got.Time, got.Module, got.Modified = "", "", "", false
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
