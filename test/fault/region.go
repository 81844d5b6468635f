// Package fault has the faults that tests inject into a local region, with the functions that inject them: drills, outages, runbooks, and the causes
// for which the API of a customer fails. A row of a table names a fault and what must name it: its alerts, its layer or concern in explanations
// and timelines, and its runbook. A fault that one suite injects has its row there.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// Region is a running region, and the folder of its state.
type Region struct {
	*local.Region
	Dir string
}

// Alert is an alert with some of its labels.
type Alert struct {
	Name   string
	Labels map[string]string
}

// Start starts a throwaway region on free ports, which ends with the test. Without config.StateDir, its state is in a folder that is kept if the
// test fails.
func Start(t *testing.T, ctx context.Context, config local.Config) *Region {
	t.Helper()
	if config.StateDir == "" {
		dir, err := os.MkdirTemp("", "hcpmesh-region-")
		if err == nil {
			err = os.Chmod(dir, 0o755) // PostgreSQL runs as another user
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the state of the region is in %s", dir)
			} else if err := local.Purge(dir); err != nil {
				t.Error(err)
			}
		})
		config.StateDir = dir
	}
	config.BasePort, config.Throwaway = new(int), true
	running := must.Get(local.Start(ctx, config))(t)
	t.Cleanup(running.Close)
	return &Region{running, config.StateDir}
}

// end returns a function that calls all functions and fails the test for their errors.
func end(t *testing.T, undo ...func() error) func() {
	return func() {
		t.Helper()
		for _, each := range undo {
			if err := each(); err != nil {
				t.Error(err)
			}
		}
	}
}

// KillProcesses kills processes, and does not restart them until the returned function is called.
func (r *Region) KillProcesses(t *testing.T, ctx context.Context, names ...string) (restart func()) {
	t.Helper()
	var undo []func() error
	for _, name := range names {
		release := must.Get(r.Hold(ctx, name))(t)
		t.Cleanup(release)
		undo = append(undo, func() error { release(); return nil })
	}
	return end(t, undo...)
}

// KillAPIs kills the API servers of clusters, and keeps them from being restarted until the returned function is called.
func (r *Region) KillAPIs(t *testing.T, clusters ...adminv1.Cluster) (repair func()) {
	t.Helper()
	return r.breakAPIs(t, clusters, (*Server).Kill)
}

func (r *Region) breakAPIs(t *testing.T, clusters []adminv1.Cluster, begin func(*Server) (undo func() error, err error)) (repair func()) {
	t.Helper()
	var undo []func() error
	for _, cluster := range clusters {
		server := must.Get(Find(r.Endpoints(), r.Dir, cluster))(t)
		each, err := begin(server)
		if err != nil {
			end(t, undo...)()
			t.Fatal(err)
		}
		undo = append(undo, each)
	}
	return end(t, undo...)
}

// Aside renames the first file or folder of the region that matches a pattern, and puts a file with other content in its place, or a folder if content
// is nil. The returned function undoes that.
func (r *Region) Aside(t *testing.T, pattern string, content []byte) (undo func()) {
	t.Helper()
	back := must.Get(aside(r.File(t, pattern), content))(t)
	return end(t, back)
}

func aside(file string, content []byte) (undo func() error, err error) {
	if err := os.Rename(file, file+".aside"); err != nil {
		return nil, err
	}
	if content == nil {
		err = os.Mkdir(file, 0o700)
	} else {
		err = os.WriteFile(file, content, 0o600)
	}
	undo = func() error { return errors.Join(os.RemoveAll(file), os.Rename(file+".aside", file)) }
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// File returns the first file of the region that matches a pattern.
func (r *Region) File(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.Dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	return files[0]
}

// Emulator adds a rule to the faults of the emulator at an address. The returned function removes all rules of the emulator.
func (r *Region) Emulator(t *testing.T, ctx context.Context, address string, rule map[string]any) (remove func()) {
	t.Helper()
	faults := address + "/_emulator/faults"
	// A test may have killed the emulator.
	eventually.Soon(t, "the emulator accepts a fault", func() error { return Send(ctx, r.Endpoints(), http.MethodPost, faults, "", rule) })
	return end(t, func() error { return Send(ctx, r.Endpoints(), http.MethodDelete, faults, "", nil) })
}

// Send sends a request to a region with a token, or with none if it is empty, and returns an error for a status that is none of success.
func Send(ctx context.Context, endpoints local.Endpoints, method, url, token string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client, err := customer.NewHTTPClient(endpoints.CAFile)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return nil
}
