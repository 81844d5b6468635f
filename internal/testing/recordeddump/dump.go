// Package recordeddump joins the tests of services that must not import each other. A service that brings a cluster into a
// situation compares what it reports with a recorded dump; admin's tests explain the same dump. A change of what a service
// reports fails its own test until the recording is updated, and then fails admin's test if the explanation no longer holds.
package recordeddump

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

var update = flag.Bool("update-recordings", false, "rewrite the recorded dumps")

//go:embed testdata
var recordings embed.FS

// folder is where recordings are written, from the folder of a package of a service.
const folder = "../../../internal/testing/recordeddump/testdata"

// takenAt replaces the time at which a dump was taken.
var takenAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Read returns a recorded dump.
func Read(t testing.TB, name string) *adminv1.Dump {
	t.Helper()
	content, err := recordings.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	dump := &adminv1.Dump{}
	if err := json.Unmarshal(content, dump); err != nil {
		t.Fatal(err)
	}
	return dump
}

// Names returns the names of all recordings.
func Names(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, service := range []string{"backend", "cluster-service"} {
		entries, err := recordings.ReadDir("testdata/" + service)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			names = append(names, service+"/"+strings.TrimSuffix(entry.Name(), ".json"))
		}
	}
	return names
}

// unchanged is the number of equal dumps after which -update-recordings rewrites a recording.
const unchanged = 50

// Await takes dumps until one equals the recording. It fails at once if a dump differs that was taken after settled had returned nil. settled
// returns an error while the service has work that can change the dump, and so does not depend on the speed of the machine; if it is nil, Await
// fails only when eventually.Context ends. With -update-recordings, Await waits until nothing changes any more and rewrites the recording.
func Await(t testing.TB, name string, take func() *adminv1.Dump, settled func() error) {
	t.Helper()
	var got []byte
	if *update {
		equal := 0
		eventually.Soon(t, "the dump for the recording "+name+" does not change", func() error {
			before := got
			got = normalize(t, take())
			if !bytes.Equal(before, got) {
				equal = 0
				return fmt.Errorf("it has changed (-before +after):\n%s", cmp.Diff(string(before), string(got)))
			}
			if equal++; equal < unchanged {
				return fmt.Errorf("%d dumps are equal, want %d", equal, unchanged)
			}
			return nil
		})
		path := filepath.Join(folder, name+".json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := recordings.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := eventually.Context(t)
	defer cancel()
	equal := false
	err = eventually.Repeat(ctx, func() error {
		changing := errors.New("the service may still change it")
		if settled != nil {
			changing = settled() // before the dump
		}
		got = normalize(t, take())
		if equal = bytes.Equal(got, want); equal || changing == nil {
			return nil
		}
		return fmt.Errorf("the dump differs from the recording: %w", changing)
	})
	if err == nil && !equal {
		err = errors.New("the service has settled, and the dump differs from the recording")
	}
	if err != nil {
		t.Fatalf("%v (rewrite the recording %s with -update-recordings) (-want +got):\n%s", err, name, cmp.Diff(string(want), string(got)))
	}
}

// normalize returns a dump as JSON without specs, texts for people, and what differs between runs: identifiers, ports,
// counters and exact times. Times keep their distance from the time of the dump, rounded to five minutes.
func normalize(t testing.TB, dump *adminv1.Dump) []byte {
	t.Helper()
	began := dump.TakenAt
	if layer := dump.ClusterService; layer != nil {
		if layer.Cluster != nil {
			layer.Cluster.Of = proto.CloneOf(layer.Cluster.Of)
			layer.Cluster.Of.Spec = nil
		}
		for i, pool := range layer.NodePools {
			layer.NodePools[i].Of = proto.CloneOf(pool.Of)
			layer.NodePools[i].Of.Spec = nil
		}
		for i, auth := range layer.ExternalAuths {
			layer.ExternalAuths[i].Of = proto.CloneOf(auth.Of)
			layer.ExternalAuths[i].Of.Spec = nil
		}
	}
	content, err := json.Marshal(dump)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	content, err = json.MarshalIndent(normalized(value, began), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(content, '\n')
}

// omitted lists the fields that differ between runs, and texts for people.
var omitted = []string{"revision", "attempts", "lastHeardTime", "lastHeartbeatTime", "unansweredSince", "sealingKeyId", "certificate", "servingCertificateAuthority", "modified",
	"message", "waitsFor", "lastError", "sentences"}

func normalized(value any, began time.Time) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			if slices.Contains(omitted, key) {
				delete(value, key)
				continue
			}
			value[key] = normalized(value[key], began)
		}
	case []any:
		for i := range value {
			value[i] = normalized(value[i], began)
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
			return takenAt.Add(at.Sub(began).Round(5 * time.Minute)).Format(time.RFC3339)
		}
		for _, identifier := range identifiers {
			value = identifier.expression.ReplaceAllString(value, identifier.replacement)
		}
		return value
	}
	return value
}

var identifiers = []struct {
	expression  *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "00000000-0000-4000-8000-000000000000"},
	{regexp.MustCompile(`\b[0-9a-v]{32}\b`), strings.Repeat("0", 32)},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:1"},
}
