package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// secretPlaces are the files in the state directory of a region that contain secrets of clusters by design, each with the reason.
var secretPlaces = map[string]string{
	"hosted/*/*/*.key": "The runtime gives API servers their keys in files. Pods have them in volumes of Secrets.",
}

// canary is a secret that must be found nowhere, with the forms in which it could be stored.
type canary struct {
	what  string
	forms [][]byte
}

// newCanary returns a secret: a private key in PEM, or text.
func newCanary(t *testing.T, what string, value []byte) canary {
	t.Helper()
	text := value
	c := canary{what: what}
	if block, _ := pem.Decode(value); block != nil {
		// One line, so that it is found in JSON too.
		lines := bytes.Split(bytes.TrimSpace(value), []byte("\n"))
		switch key, err := parsePrivateKey(block); key := key.(type) {
		case *rsa.PrivateKey:
			text = lines[len(lines)/2]
			c.forms = append(c.forms, key.D.Bytes())
		case *ecdsa.PrivateKey:
			text = lines[1] // the others contain the public key
			scalar := must.Get(key.Bytes())(t)
			c.forms = append(c.forms, scalar)
		default:
			t.Fatalf("%s is a %T, %v", what, key, err)
		}
	}
	c.forms = append(c.forms, text)
	for shift := range 3 {
		// The encoding depends on the position of the text in what is encoded. Its ends depend on what is around it.
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), text...))
		c.forms = append(c.forms, []byte(encoded[4:len(encoded)-4]))
	}
	return c
}

func parsePrivateKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return x509.ParsePKCS8PrivateKey(block.Bytes)
}

// in returns whether the content contains the secret.
func (c canary) in(content []byte) bool {
	return slices.ContainsFunc(c.forms, func(form []byte) bool { return bytes.Contains(content, form) })
}

// TestSecretsAreInNoStore creates a cluster, reads its secrets from its management cluster and searches every store, log, metric and
// process of the region for them.
func TestSecretsAreInNoStore(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 8*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-0000000000e7", "canary")
	parallel.enter()
	defer func() { parallel.leave(t, c) }()
	id := c.ClusterID("canary")
	d := scenario{t: t, ctx: ctx, c: c, id: id}
	d.put(id, c.ClusterBody("canary"))
	defer func() {
		if err := c.Delete(ctx, id); err != nil {
			t.Error(err)
		}
	}()
	canaries := clusterSecrets(t, ctx, id)
	token := must.Get(c.ARMToken(ctx))(t)
	canaries = append(canaries, newCanary(t, "the customer's access token", []byte(token[strings.LastIndex(token, ".")+1:])))
	search := func(where string, content []byte) {
		for _, secret := range canaries {
			if secret.in(content) {
				t.Errorf("%s contains %s", where, secret.what)
			}
		}
	}
	searchDatabases(t, ctx, search)
	searchFiles(t, search)
	searchMetrics(t, ctx, search)
	searchProcesses(t, search)
}

// clusterSecrets returns the private values of all Secrets of a cluster on its management cluster.
func clusterSecrets(t *testing.T, ctx context.Context, id string) []canary {
	t.Helper()
	mgmt := hosting(t, ctx, id)
	hosted, controlPlane := mgmt.namespace, mgmt.namespace+"-"+mgmt.get(ctx, "hostedclusters", `{.items[0].metadata.name}`)
	var canaries []canary
	for _, namespace := range []string{hosted, controlPlane} {
		mgmt.namespace = namespace
		out := must.Get(mgmt.run(ctx, "get", "secrets", "-o", "json"))(t)
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Data     map[string][]byte
			}
		}
		must.Do(t, json.Unmarshal([]byte(out), &list))
		for _, secret := range list.Items {
			for key, value := range secret.Data {
				if bytes.Contains(value, []byte("PRIVATE KEY-----")) {
					canaries = append(canaries, newCanary(t, fmt.Sprintf("%s of Secret %s", key, secret.Metadata.Name), value))
				}
			}
		}
	}
	if !slices.ContainsFunc(canaries, func(c canary) bool { return c.what == "key of Secret sa-signing-key" }) {
		t.Fatalf("the signing key is not among the secrets %v", canaries)
	}
	return canaries
}

// searchDatabases searches all rows of the databases of the services.
func searchDatabases(t *testing.T, ctx context.Context, search func(string, []byte)) {
	t.Helper()
	for _, name := range []string{local.ClusterServiceDatabase, local.MaestroDatabase} {
		connection := must.Get(administrator(ctx, name))(t)
		defer connection.Close(context.WithoutCancel(ctx))
		listed := must.Get(connection.Query(ctx, "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"))(t)
		tables := must.Get(pgx.CollectRows(listed, pgx.RowTo[string]))(t)
		if len(tables) == 0 {
			t.Errorf("database %s has no tables", name)
		}
		for _, table := range tables {
			var content bytes.Buffer
			must.Get(connection.PgConn().CopyTo(ctx, &content, "COPY "+table+" TO STDOUT (FORMAT binary)"))(t)
			search("table "+table+" of database "+name, content.Bytes())
		}
	}
}

// searchFiles searches the files of all processes, and with them the stores of the emulators and of etcd, and the logs.
func searchFiles(t *testing.T, search func(string, []byte)) {
	t.Helper()
	root, used := filepath.Dir(region.LogDir()), map[string]bool{}
	must.Do(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(root, path)
		switch {
		case os.IsNotExist(err): // removed meanwhile
			return nil
		case err != nil:
			return err
		}
		for place := range secretPlaces {
			if matched, _ := filepath.Match(place, relative); matched {
				used[place] = true
				if entry.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		search("file "+relative, content)
		return nil
	}))
	for place := range secretPlaces {
		if !used[place] {
			t.Errorf("no file matches %s of secretPlaces", place)
		}
	}
}

// searchMetrics searches what every process exports.
func searchMetrics(t *testing.T, ctx context.Context, search func(string, []byte)) {
	t.Helper()
	for process, address := range region.Endpoints().Ops {
		request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody))(t)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // another test has stopped the process
		}
		content, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil {
			search("metrics of "+process, content)
		}
	}
}

// searchProcesses searches the arguments and the environment of all processes that use the region's files.
func searchProcesses(t *testing.T, search func(string, []byte)) {
	t.Helper()
	arguments := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	found := 0
	for _, path := range arguments {
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(content, []byte(filepath.Dir(region.LogDir()))) {
			continue
		}
		found++
		search("arguments of "+string(bytes.ReplaceAll(content, []byte{0}, []byte{' '})), content)
		if environment, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ")); err == nil {
			search("environment of process "+filepath.Base(filepath.Dir(path)), environment)
		}
	}
	if found == 0 {
		t.Error("no process uses the region's files")
	}
}
