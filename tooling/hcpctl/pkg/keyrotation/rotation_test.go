package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// replica is a process that uses a copy of the keyset and exports metrics.
type replica struct {
	file, url string
	keys      *seal.Keys
	metrics   *prometheus.Registry
}

func startReplica(t *testing.T, flag, keyset string) *replica {
	t.Helper()
	r := &replica{file: filepath.Join(t.TempDir(), "keyset.json"), metrics: prometheus.NewRegistry()}
	copyFile(t, keyset, r.file)
	r.keys = must.Get(seal.Load(r.file))(t)
	r.metrics.MustRegister(keyfile.Collector(flag, r.keys.Ring), keyfile.Collector("other-key-file", func() keyfile.Ring { return keyfile.Ring{Primary: 1, IDs: []uint32{1}} }))
	server := httptest.NewServer(promhttp.HandlerFor(r.metrics, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	must.Do(t, replaceFile(from, to))
}

func replaceFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".part", content, 0o600); err != nil {
		return err
	}
	return os.Rename(to+".part", to)
}

// deployment is a keyset with two replicas of a service.
type deployment struct {
	keyset   string
	replicas []*replica
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{keyset: filepath.Join(t.TempDir(), "keyset.json")}
	must.Do(t, seal.Create(d.keyset))
	for range 2 {
		d.replicas = append(d.replicas, startReplica(t, "credential-key-file", d.keyset))
	}
	return d
}

// rotation returns a rotation whose former key is needed for a time. The files reach one replica after the other.
func (d *deployment) rotation(t *testing.T, needed time.Duration) *Rotation {
	kind := must.Get(KindOf("credentials"))(t)
	kind.Needed = needed
	r := &Rotation{Kind: kind, Keyset: d.keyset, Options: Options{HTTP: http.DefaultClient, Now: time.Now, NoWait: true, Note: func(text string) { t.Log(text) }},
		Replicas: map[string][]string{"frontend": {d.replicas[0].url, d.replicas[1].url}}}
	r.Publish = func(context.Context) error {
		for _, replica := range d.replicas {
			if err := errors.Join(replaceFile(d.keyset, replica.file), r.done(nil)); err != nil {
				return err
			}
		}
		return nil
	}
	return r
}

// check checks that each replica opens what each one seals.
func (d *deployment) check(t *testing.T, when string) {
	t.Helper()
	for i, sealing := range d.replicas {
		sealed := sealing.keys.Seal("purpose", []byte("content"))
		for j, opening := range d.replicas {
			if got, err := opening.keys.Open("purpose", sealed); err != nil || string(got) != "content" {
				t.Errorf("%s: the replica %d does not open what the replica %d sealed: %v", when, j, i, err)
			}
		}
	}
}

func (d *deployment) ids(t *testing.T) []uint32 {
	t.Helper()
	handle := must.Get(keyfile.Read(d.keyset))(t)
	return keyfile.RingOf(handle).IDs
}

// TestInterruptedRotationContinues interrupts a rotation after each of its durable changes, and runs it again.
func TestInterruptedRotationContinues(t *testing.T) {
	interruption := errors.New("interrupted")
	completed := false
	for n := 1; !completed; n++ {
		t.Run(fmt.Sprint("change ", n), func(t *testing.T) {
			d := deploy(t)
			former := d.ids(t)[0]
			before := d.replicas[0].keys.Seal("purpose", []byte("before"))
			changes := 0
			first := d.rotation(t, 0)
			first.reached = func() error {
				changes++
				d.check(t, fmt.Sprint("after the change ", changes))
				if changes == n {
					return interruption
				}
				return nil
			}
			if err := first.Run(t.Context()); err == nil {
				completed = true
			} else if !errors.Is(err, interruption) {
				t.Fatal(err)
			}
			if !completed {
				rotating, err := InProgress(d.keyset)
				if last := len(d.ids(t)) == 1 && d.ids(t)[0] != former; err != nil || !rotating && !last {
					t.Errorf("after the interruption, a rotation is in progress: %v, %v", rotating, err)
				}
				if !rotating {
					return // the interruption was after the end
				}
				second := d.rotation(t, 0)
				second.reached = func() error { d.check(t, "during the second run"); return nil }
				if err := second.Run(t.Context()); err != nil {
					t.Fatalf("the second run: %v", err)
				}
			}
			if ids := d.ids(t); len(ids) != 1 || ids[0] == former {
				t.Errorf("the keyset has the keys %v, the former key was %d", ids, former)
			}
			if rotating, err := InProgress(d.keyset); rotating || err != nil {
				t.Errorf("a rotation is in progress: %v, %v", rotating, err)
			}
			for _, replica := range d.replicas {
				if _, err := replica.keys.Open("purpose", before); err == nil {
					t.Error("a replica still opens what the former key sealed")
				}
			}
		})
	}
}

// TestFormerKeyIsKeptWhileItIsNeeded advances the clock to the end of the time for which values of the former key are in use.
func TestFormerKeyIsKeptWhileItIsNeeded(t *testing.T) {
	d := deploy(t)
	ahead := time.Duration(0)
	run := func() error {
		r := d.rotation(t, time.Hour)
		r.Now = func() time.Time { return time.Now().Add(ahead) }
		return r.Run(t.Context())
	}
	before := d.replicas[0].keys.Seal("purpose", []byte("before"))
	for ahead = 0; ahead < time.Hour; ahead += 25 * time.Minute {
		if err := run(); !errors.Is(err, ErrNotYet) || len(d.ids(t)) != 2 {
			t.Fatalf("after %s: %v, %d keys", ahead, err, len(d.ids(t)))
		}
		if _, err := d.replicas[1].keys.Open("purpose", before); err != nil {
			t.Fatalf("after %s: %v", ahead, err)
		}
	}
	if err := run(); err != nil || len(d.ids(t)) != 1 {
		t.Errorf("after %s: %v, %d keys", ahead, err, len(d.ids(t)))
	}
}

// TestUnsafeRotationsAreRefused checks that a refused rotation changes no key.
func TestUnsafeRotationsAreRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		prepare func(t *testing.T, d *deployment, r *Rotation)
		want    string
	}{
		"a replica uses another keyset": {func(t *testing.T, d *deployment, _ *Rotation) {
			must.Do(t, errors.Join(os.Remove(d.replicas[1].file), seal.Create(d.replicas[1].file)))
		}, "does not use"},
		"a replica is of another service": {func(_ *testing.T, _ *deployment, r *Rotation) { r.Kind.Flag = "unknown-key-file" }, "exports no keys of --unknown-key-file"},
		"a replica is away": {func(t *testing.T, _ *deployment, r *Rotation) {
			r.Replicas["frontend"] = append(r.Replicas["frontend"], "http://"+netfault.ClosedAddress(t))
		}, "reading the metrics"},
		"no replica is named": {func(_ *testing.T, _ *deployment, r *Rotation) { r.Replicas = nil }, "--replica"},
		"a rotation by hand is in progress": {func(t *testing.T, d *deployment, _ *Rotation) {
			must.Get(keyfile.Add(d.keyset))(t)
		}, "a rotation by hand is in progress"},
		"a rotation of another kind is in progress": {func(t *testing.T, d *deployment, _ *Rotation) {
			must.Do(t, (&record{Kind: "skip-tokens", Step: Adding, Former: d.ids(t)[0]}).write(d.keyset))
		}, "a rotation of the kind skip-tokens is in progress"},
		"another process rotates": {func(t *testing.T, d *deployment, _ *Rotation) {
			unlock := must.Get(keyfile.Lock(d.keyset))(t)
			t.Cleanup(unlock)
		}, keyfile.ErrLocked.Error()},
		"the keyset has foreign keys during a rotation": {func(t *testing.T, d *deployment, _ *Rotation) {
			must.Do(t, (&record{Kind: "credentials", Step: Promoting, Former: d.ids(t)[0], Next: 7}).write(d.keyset))
			must.Get(keyfile.Add(d.keyset))(t)
		}, "was changed during the rotation"},
		"the record is of a later release": {func(t *testing.T, d *deployment, _ *Rotation) {
			must.Do(t, (&record{Kind: "credentials", Step: "Splitting"}).write(d.keyset))
		}, `step: "Splitting" is unknown`},
	} {
		t.Run(reason, func(t *testing.T) {
			d := deploy(t)
			r := d.rotation(t, 0)
			c.prepare(t, d, r)
			before := must.Get(os.ReadFile(d.keyset))(t)
			if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
			if after, err := os.ReadFile(d.keyset); err != nil || string(after) != string(before) {
				t.Errorf("the keyset changed: %v", err)
			}
		})
	}
}

// TestReplicaWithoutTheNewKeyStopsThePromotion publishes to one of two replicas only.
func TestReplicaWithoutTheNewKeyStopsThePromotion(t *testing.T) {
	d := deploy(t)
	former := d.ids(t)[0]
	r := d.rotation(t, 0)
	r.Publish = func(context.Context) error { return replaceFile(d.keyset, d.replicas[0].file) }
	for range 2 {
		if err := r.Run(t.Context()); !errors.Is(err, ErrNotYet) || !strings.Contains(err.Error(), d.replicas[1].url) {
			t.Errorf("got the error %v, want one with the replica %s", err, d.replicas[1].url)
		}
		if got := d.replicas[0].keys.Primary(); got != former {
			t.Errorf("the key %d was promoted, which a replica has not read", got)
		}
		d.check(t, "one replica has the new key")
	}
	must.Do(t, d.rotation(t, 0).Run(t.Context()))
}

// TestProgressIsReadFromTheReplicas checks the decisions on the metrics of the services.
func TestProgressIsReadFromTheReplicas(t *testing.T) {
	const resealed = "cluster_service_signing_keys 9\ncluster_service_signing_keys_to_reseal 0\ncluster_service_reseal_passes{key=\"2\"} 2\n"
	for reason, c := range map[string]struct {
		kind    string
		metrics map[string][]string // of the replicas of each service
		want    Progress
	}{
		"signing keys are left": {"signing-keys", map[string][]string{"cluster-service": {"cluster_service_signing_keys 9\ncluster_service_signing_keys_to_reseal 4\n"},
			"backend": {"backend_resources_queued 0\n"}}, Progress{Left: 4, Total: 9}},
		"the passes were with the former key": {"signing-keys", map[string][]string{"cluster-service": {resealed,
			"cluster_service_signing_keys 9\ncluster_service_signing_keys_to_reseal 0\ncluster_service_reseal_passes{key=\"1\"} 2\n"}, "backend": {"backend_resources_queued 0\n"}}, Progress{Total: 9}},
		"the second pass is due": {"signing-keys", map[string][]string{"cluster-service": {"cluster_service_signing_keys 9\ncluster_service_signing_keys_to_reseal 0\ncluster_service_reseal_passes{key=\"2\"} 1\n"},
			"backend": {"backend_resources_queued 0\n"}}, Progress{Total: 9}},
		"the backend copies":             {"signing-keys", map[string][]string{"cluster-service": {resealed}, "backend": {"backend_resources_queued 0\n", "backend_resources_queued 3\n"}}, Progress{Total: 9}},
		"the backend is another release": {"signing-keys", map[string][]string{"cluster-service": {resealed}, "backend": {""}}, Progress{Total: 9}},
		"all signing keys are resealed":  {"signing-keys", map[string][]string{"cluster-service": {resealed, resealed}, "backend": {"backend_resources_queued 0\n"}}, Progress{Total: 9, Done: true}},
		"the agent has Secrets of the former key": {"agent", map[string][]string{"cluster-service": {"cluster_service_shard_key_renewed{shard=\"mgmt-1\",key=\"2\"} 1\n"},
			"maestro-agent": {"maestro_agent_sealed_secrets{key=\"1\"} 3\nmaestro_agent_sealed_secrets{key=\"2\"} 5\n"}}, Progress{Left: 3, Total: 8}},
		"clusters of another shard are rendered": {"agent", map[string][]string{"cluster-service": {"cluster_service_shard_key_renewed{shard=\"mgmt-2\",key=\"2\"} 1\n"},
			"maestro-agent": {"maestro_agent_sealed_secrets{key=\"2\"} 5\n"}}, Progress{Total: 5}},
		"all clusters are rendered and delivered": {"agent", map[string][]string{"cluster-service": {"cluster_service_shard_key_renewed{shard=\"mgmt-1\",key=\"2\"} 1\n"},
			"maestro-agent": {"maestro_agent_sealed_secrets{key=\"2\"} 8\n"}}, Progress{Total: 8, Done: true}},
	} {
		t.Run(reason, func(t *testing.T) {
			kind := must.Get(KindOf(c.kind))(t)
			r := &Rotation{Kind: kind, Shard: "mgmt-1", Options: Options{HTTP: http.DefaultClient}, Replicas: map[string][]string{}}
			for service, replicas := range c.metrics {
				for _, text := range replicas {
					server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(asGauges(text))) }))
					defer server.Close()
					r.Replicas[service] = append(r.Replicas[service], server.URL)
				}
			}
			got := must.Get(kind.progress(t.Context(), r, "1", "2"))(t)
			if got.Done == (got.Waiting != "") {
				t.Errorf("done %v, waiting for %q", got.Done, got.Waiting)
			}
			if got.Waiting = ""; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// asGauges adds the types to series.
func asGauges(series string) string {
	var text strings.Builder
	typed := map[string]bool{}
	for line := range strings.Lines(series) {
		if name, _, _ := strings.Cut(strings.Fields(line)[0], "{"); !typed[name] {
			typed[name] = true
			fmt.Fprintf(&text, "# TYPE %s gauge\n", name)
		}
		text.WriteString(line)
	}
	return text.String()
}
