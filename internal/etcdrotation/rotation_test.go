package etcdrotation_test

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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/etcdrotation"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// interrupted ends the rotation after each durable change, as the end of the process does.
type interrupted struct {
	etcdrotation.Store
	changes int
}

var errInterrupted = errors.New("interrupted")

func (s *interrupted) Write(ctx context.Context, state etcdrotation.State, keys kubeapi.EncryptionKeys) error {
	if err := s.Store.Write(ctx, state, keys); err != nil {
		return err
	}
	s.changes++
	return errInterrupted
}

// cluster is a management cluster with the file of its encryption keys.
type cluster struct {
	*kubeapitest.Cluster
	file   string
	client *http.Client
}

func start(t *testing.T) *cluster {
	c := &cluster{Cluster: kubeapitest.Start(t)}
	dir := filepath.Dir(c.Kubeconfig())
	c.file = filepath.Join(dir, kubeapi.EncryptionFile)
	pki := must.Get(kubeapi.Open(dir, "test"))(t)
	config := must.Get(pki.TLS(kubeapi.Admin))(t)
	c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (c *cluster) keys(t *testing.T) kubeapi.EncryptionKeys {
	t.Helper()
	text := must.Get(os.ReadFile(c.file))(t)
	keys, _, err := kubeapi.ReadEncryptionConfiguration(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// send sends a request and returns an error unless the answer has the status.
func (c *cluster) send(method, path, body string, status int) error {
	request, err := http.NewRequest(method, c.Server+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != status {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, text)
	}
	return nil
}

const secrets = "/api/v1/namespaces/default/secrets"

func secret(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"stringData":{"password":"canary"}}`, name)
}

// load creates, changes, lists and deletes Secrets ten times a second until ctx ends, and counts the requests. All of them must succeed.
func (c *cluster) load(ctx context.Context, t *testing.T, writer int, count *atomic.Int64) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		name := fmt.Sprintf("load-%d-%d", writer, n)
		for _, err := range []error{
			c.send(http.MethodPost, secrets, secret(name), http.StatusCreated),
			c.send(http.MethodPatch, secrets+"/"+name, `{"stringData":{"password":"changed"}}`, http.StatusOK),
			c.send(http.MethodGet, secrets+"?limit=5", "", http.StatusOK),
		} {
			if err != nil {
				t.Error(err)
				return
			}
			count.Add(1)
		}
		if n%10 > 0 {
			if err := c.send(http.MethodDelete, secrets+"/"+name, "", http.StatusOK); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// TestKeyIsReplacedWhileClientsWrite interrupts a rotation after each change of the keys, and continues it. The API server, which runs all
// the time, loads each configuration within a minute. In the end, etcd has no value of the former key.
func TestKeyIsReplacedWhileClientsWrite(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	c := start(t)
	users := c.EtcdUsers(t)
	for i := range 300 { // more than a page
		must.Do(t, c.send(http.MethodPost, secrets, secret(fmt.Sprintf("before-%d", i)), http.StatusCreated))
	}
	former := c.keys(t)
	ctx, stop := context.WithCancel(t.Context())
	var requests atomic.Int64
	var clients sync.WaitGroup
	for writer := range 2 {
		clients.Go(func() { c.load(ctx, t, writer, &requests) })
	}
	var notes []string
	begun, runs := requests.Load(), 0
	for err := error(errInterrupted); err != nil; runs++ {
		if !errors.Is(err, errInterrupted) || runs > 4 {
			t.Fatalf("run %d: %v", runs, err)
		}
		store, unlock, opened := etcdrotation.OpenFile(c.file)
		if opened != nil {
			t.Fatal(opened)
		}
		if _, _, again := etcdrotation.OpenFile(c.file); !errors.Is(again, keyfile.ErrLocked) {
			t.Errorf("the file was opened twice: %v", again)
		}
		r := &etcdrotation.Rotation{Store: &interrupted{Store: store}, Etcd: users, Prefix: "/test", RequestTimeout: 20 * time.Second,
			Server: func(context.Context) (*etcdrotation.Server, error) {
				return &etcdrotation.Server{URL: c.Server, HTTP: c.client}, nil
			},
			Note: func(text string) { notes = append(notes, text); t.Log(text) }}
		err = r.Run(t.Context())
		unlock()
	}
	stop()
	clients.Wait()
	if runs != 4 {
		t.Errorf("%d runs, want one for each of three changes, and one until the last one is loaded; %q", runs, notes)
	}
	t.Logf("%d requests of clients", requests.Load()-begun)
	now := c.keys(t)
	if now.Read != nil || now.Write.Number != former.Write.Number+1 || bytes.Equal(now.Write.Secret, former.Write.Secret) {
		t.Errorf("the key %d was replaced by %d; another key is left: %v", former.Write.Number, now.Write.Number, now.Read != nil)
	}
	values := must.Get(users.Read(t.Context(), "/test"))(t)
	encrypted := 0
	for key, value := range values {
		if strings.HasPrefix(key, "/test/secrets/") || strings.HasPrefix(key, "/test/configmaps/") {
			encrypted++
			if !bytes.HasPrefix(value, []byte(now.Write.Prefix())) {
				t.Errorf("%s is not encrypted with the new key", key)
			}
		}
		if bytes.HasPrefix(value, []byte(former.Write.Prefix())) || bytes.Contains(value, []byte("canary")) {
			t.Errorf("%s is encrypted with the former key, or not at all", key)
		}
	}
	if encrypted < 300 {
		t.Errorf("etcd has only %d encrypted values", encrypted)
	}
	if err := c.send(http.MethodGet, secrets, "", http.StatusOK); err != nil {
		t.Error(err)
	}
}

// TestChangedKeysAreNotReplaced changes the keys after a rotation has read them.
func TestChangedKeysAreNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), kubeapi.EncryptionFile)
	write := func(keys kubeapi.EncryptionKeys) {
		t.Helper()
		text, err := kubeapi.EncryptionConfiguration(keys, "manifestworks.work.open-cluster-management.io")
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first := kubeapi.NewEncryptionKeys()
	write(first)
	store, unlock, err := etcdrotation.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	state, err := store.Read(t.Context())
	if err != nil || len(state.Resources) != 3 || !state.Keys.Equal(first) {
		t.Fatalf("resources %v, %v", state.Resources, err)
	}
	write(first.AddNext())
	if err := store.Write(t.Context(), state, first.AddNext()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("written over other keys: %v", err)
	}
	if state, err = store.Read(t.Context()); err != nil || !state.Keys.HasNext() {
		t.Fatal(err)
	}
	must.Do(t, store.Write(t.Context(), state, state.Keys.Promote()))
	if state, err = store.Read(t.Context()); err != nil || !state.Keys.HasFormer() || len(state.Resources) != 3 {
		t.Errorf("resources %v, %v", state.Resources, err)
	}
	if _, _, err := etcdrotation.OpenFile(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestSecretIsReplacedUnlessItsKeysChanged changes a Secret with keys after a rotation has read it: first without a change of the keys, as a
// rotation of the management cluster's own key does, then another key.
func TestSecretIsReplacedUnlessItsKeysChanged(t *testing.T) {
	t.Parallel()
	c := start(t)
	store := &etcdrotation.Secret{Management: etcdrotation.Server{URL: c.Server, HTTP: c.client}, Namespace: "default"}
	first := kubeapi.NewEncryptionKeys()
	path := secrets + "/" + kubeapi.HostedEncryptionSecret
	body, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": kubeapi.HostedEncryptionSecret}, "data": first.SecretData()})
	if err == nil {
		err = c.send(http.MethodPost, secrets, string(body), http.StatusCreated)
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.Read(t.Context())
	if err != nil || !state.Keys.Equal(first) {
		t.Fatal(err)
	}
	must.Do(t, c.send(http.MethodPatch, path, `{"metadata":{"labels":{"changed":"true"}}}`, http.StatusOK))
	adding := first.AddNext()
	if err := store.Write(t.Context(), state, adding); err != nil {
		t.Errorf("the keys are the same: %v", err)
	}
	if now, err := store.Read(t.Context()); err != nil || !now.Keys.Equal(adding) {
		t.Errorf("the keys were not written: %v", err)
	}
	if err := store.Write(t.Context(), state, first.AddNext()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("written over other keys: %v", err)
	}
}
