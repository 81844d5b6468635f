package installation_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// maestro is a Maestro server outside of the cluster, as the server of another cluster is, and a source that publishes bundles.
type maestro struct {
	*region
	source *lines
	input  *json.Encoder
	// rest is the address of the REST API.
	rest string
}

// startMaestro starts PostgreSQL, the MQTT broker and the Maestro server as processes of the machine. Pods of the cluster reach the broker
// under the name of the Event Grid namespace.
func (r *region) startMaestro() *maestro {
	r.t.Helper()
	mqtt := r.startBroker()
	role := postgresserver.Role{Name: "maestro", Password: "maestro"}
	data, err := os.MkdirTemp("", "hcpmesh-postgres-") // the user of PostgreSQL must be able to enter the folder
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(data) })
	must.Do(r.t, os.Chmod(data, 0o755))
	database := must.Get(postgresserver.Start(r.ctx, postgresserver.Options{DataDir: filepath.Join(data, "server"), Throwaway: true,
		Databases: []postgresserver.Database{{Name: "maestro", Owner: role, Runtime: postgresserver.Role{Name: "runtime"}}}}))(r.t)
	r.t.Cleanup(database.Kill)
	must.Do(r.t, database.Provision(r.ctx))
	file := filepath.Join(r.dir, "database-url")
	must.Do(r.t, os.WriteFile(file, []byte(database.URL("maestro", role)), 0o600))
	identity := r.identity(mesh.MaestroServer, "maestro-server")
	program := must.Get(filepath.Abs(filepath.Join(imagesDir, "bin", "maestro-server")))(r.t)
	command := exec.Command(program, append(audittest.Flags(audittest.Options(r.t)), "--listen-grpc=127.0.0.1:0", "--listen-rest=127.0.0.1:0", "--ops-listen=127.0.0.1:0",
		"--identity-dir="+identity, "--mqtt-identity-dir="+identity, "--mqtt-address="+mqtt, "--database-url-file="+file)...)
	stderr := must.Get(command.StderrPipe())(r.t)
	log := r.read(stderr)
	r.spawn(command, log)
	m := &maestro{region: r}
	var grpc string
	r.await(log, "the addresses of the Maestro server", func(line []byte) bool {
		var record struct{ Msg, Address string }
		if json.Unmarshal(line, &record) == nil && record.Msg == "serving gRPC" {
			grpc = record.Address
		} else if record.Msg == "serving REST" {
			m.rest = record.Address
		}
		return grpc != "" && m.rest != ""
	})
	m.startSource(grpc)
	return m
}

// startSource starts a source as Cluster Service, and returns when it subscribes to statuses.
func (m *maestro) startSource(address string) {
	m.t.Helper()
	program := filepath.Join(m.t.TempDir(), "source")
	if output, err := exec.CommandContext(m.ctx, "go", "build", "-o", program, "./testdata/source").CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, output)
	}
	command := exec.Command(program, "--grpc="+address, "--identity-dir="+m.identity(mesh.ClusterService))
	stdin := must.Get(command.StdinPipe())(m.t)
	stdout := must.Get(command.StdoutPipe())(m.t)
	command.Stderr = m.t.Output()
	m.source, m.input = m.read(stdout), json.NewEncoder(stdin)
	m.spawn(command, m.source)
	m.await(m.source, "the subscription to statuses", func(line []byte) bool { return bytes.Contains(line, []byte(`"Subscribed":true`)) })
}

// spawn starts a process, which ends with the test.
func (r *region) spawn(command *exec.Cmd, output *lines) {
	r.t.Helper()
	process := must.Get(spawn.Start(command, syscall.SIGKILL))(r.t)
	output.start()
	r.t.Cleanup(func() {
		process.Kill()
		<-output.ended
		if r.t.Failed() {
			r.t.Logf("%s: %v\n%s", filepath.Base(command.Path), process.Err(), output.text())
		}
	})
}

// lines are the lines that a process writes.
type lines struct {
	start func()
	ended chan struct{}
	mu    sync.Mutex
	all   [][]byte
	// ignored is the number of lines that await does not read.
	ignored int
}

// read returns the lines of a pipe. They are read from the call of start on.
func (r *region) read(from io.Reader) *lines {
	l := &lines{ended: make(chan struct{})}
	l.start = func() {
		go func() {
			defer close(l.ended)
			for scanner := bufio.NewReader(from); ; {
				line, err := scanner.ReadBytes('\n')
				l.mu.Lock()
				l.all = append(l.all, line)
				l.mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
	}
	return l
}

func (l *lines) snapshot() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[:len(l.all):len(l.all)]
}

// ignore makes await ignore the lines that were read until now.
func (l *lines) ignore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ignored = len(l.all)
}

// text returns the last lines.
func (l *lines) text() []byte {
	all := bytes.Join(l.snapshot(), nil)
	return all[max(0, len(all)-8000):]
}

// await passes the lines to found, the oldest first, until it returns true.
func (r *region) await(l *lines, condition string, found func(line []byte) bool) {
	r.t.Helper()
	next := l.ignored
	eventually.Before(r.ctx, r.t, condition, func() error {
		for all := l.snapshot(); next < len(all); {
			next++
			if found(all[next-1]) {
				return nil
			}
		}
		select {
		case <-l.ended:
			return errors.New("the process has ended")
		default:
			return fmt.Errorf("not in %d lines", next)
		}
	})
}

// register registers a consumer, as hcpctl does.
func (m *maestro) register(consumer string) {
	m.t.Helper()
	identity := must.Get(mesh.LoadIdentity(m.identity(mesh.Hcpctl)))(m.t)
	body := must.Get(json.Marshal(map[string]string{"name": consumer}))(m.t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: identity.ClientTLS(mesh.MaestroServer)}}
	eventually.Before(m.ctx, m.t, "the registration of "+consumer, func() error {
		response, err := client.Post("https://"+m.rest+maestroapi.RESTPath+"/consumers", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusCreated { // the database is being migrated
			return errors.New(response.Status)
		}
		return nil
	})
}

// publish publishes a bundle and returns its version.
func (m *maestro) publish(action string, bundle map[string]any) (version int64) {
	m.t.Helper()
	after := len(m.source.snapshot()) - m.source.ignored
	must.Do(m.t, m.input.Encode(map[string]any{"Action": action, "Bundle": bundle}))
	m.await(m.source, action+" of a bundle", func(line []byte) bool {
		if after > 0 {
			after--
			return false
		}
		var result struct {
			Published, Error string
			Version          int64
		}
		if json.Unmarshal(line, &result) != nil || result.Published != bundle["ID"] {
			return false
		}
		if result.Error != "" {
			m.t.Fatalf("%s of a bundle: %s", action, result.Error)
		}
		version = result.Version
		return true
	})
	return version
}

// workStatus is the status of a bundle.
type workStatus struct {
	Conditions     []metav1.Condition
	ResourceStatus []struct {
		Conditions      []metav1.Condition
		StatusFeedbacks struct {
			Values []struct {
				Name       string
				FieldValue struct{ String string }
			}
		} `json:"statusFeedback"`
	}
}

// awaitStatus waits for a status of a version of a bundle.
func (m *maestro) awaitStatus(bundle map[string]any, version int64, condition string, met func(*workStatus) bool) {
	m.t.Helper()
	var last []byte
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.t.Logf("the last status that was read while waiting for %s: %s", condition, last)
		}
	})
	m.await(m.source, condition, func(line []byte) bool {
		var event struct {
			Bundle  string
			Version int64
			Status  json.RawMessage
		}
		var reported workStatus
		if json.Unmarshal(line, &event) != nil || event.Bundle != bundle["ID"] || event.Version < version || json.Unmarshal(event.Status, &reported) != nil {
			return false
		}
		last = event.Status
		return met(&reported)
	})
}
