package keyrotation

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// auditWriter is a process that signs checkpoints with the key in a file, and exports the ID of the key.
type auditWriter struct {
	key *audit.SigningKey
	url string
}

// auditDeployment is the audit key of a service with two processes, and a verifier that reads the public keys in a folder.
type auditDeployment struct {
	key, keys          string
	writers            []*auditWriter
	verified, verifier string
	lines              [][]byte
}

func deployAudit(t *testing.T) *auditDeployment {
	t.Helper()
	d := &auditDeployment{key: filepath.Join(t.TempDir(), "signing.key"), keys: t.TempDir()}
	key, err := audit.GenerateKey()
	if err == nil {
		err = errors.Join(key.Create(d.key), key.Publish(d.public()))
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w := &auditWriter{}
		w.key = must.Get(audit.LoadKey(d.key))(t)
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			metrics, gauge := prometheus.NewRegistry(), prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "audit_signing_key", Help: "As of package writer."}, []string{"key"})
			metrics.MustRegister(gauge)
			gauge.WithLabelValues(w.key.ID()).Set(1)
			promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP(response, request)
		}))
		t.Cleanup(server.Close)
		w.url = server.URL
		d.writers = append(d.writers, w)
	}
	d.verified = d.keys
	registry := prometheus.NewRegistry()
	verify.NewEnds(nil, nil, func() (audit.Keys, error) { return audit.LoadKeys(d.verified) }, slog.New(slog.DiscardHandler), registry)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	d.verifier = server.URL
	return d
}

func (d *auditDeployment) public() string { return filepath.Join(d.keys, "admin.pem") }

func (d *auditDeployment) rotation(t *testing.T) *AuditRotation {
	return &AuditRotation{Service: "admin", Key: d.key, Public: d.public(), Replicas: []string{d.writers[0].url, d.writers[1].url}, Verifiers: []string{d.verifier},
		Options: Options{NoWait: true, HTTP: http.DefaultClient, Now: time.Now, Note: func(text string) { t.Log(text) }}}
}

// check signs a checkpoint in each process and verifies all checkpoints until now.
func (d *auditDeployment) check(t *testing.T, when string) {
	t.Helper()
	for _, w := range d.writers {
		d.lines = append(d.lines, checkpoint(t, w.key, time.Now()))
	}
	for i, line := range d.lines {
		if err := d.verify(t, line); err != nil {
			t.Errorf("%s: the checkpoint %d is not valid: %v", when, i, err)
		}
	}
}

func checkpoint(t *testing.T, key *audit.SigningKey, at time.Time) []byte {
	t.Helper()
	line, _, err := audit.AppendCheckpoint(nil, audit.Head{Writer: "admin-0123456789abcdef", Time: at}, audit.Position{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return line[:len(line)-1]
}

func (d *auditDeployment) verify(t *testing.T, text []byte) error {
	t.Helper()
	keys := must.Get(audit.LoadKeys(d.keys))(t)
	line := must.Get(audit.ParseLine(text))(t)
	return keys.Verify(line, text)
}

// TestInterruptedAuditRotationContinues interrupts a rotation after each of its durable changes, and runs it again. Every checkpoint that a
// process signs is valid at each time, and the former key signs no valid checkpoint afterwards.
func TestInterruptedAuditRotationContinues(t *testing.T) {
	interruption := errors.New("interrupted")
	completed := false
	for n := 1; !completed; n++ {
		t.Run(fmt.Sprint("change ", n), func(t *testing.T) {
			d := deployAudit(t)
			stolen := filepath.Join(t.TempDir(), "stolen.key")
			copyFile(t, d.key, stolen)
			former := must.Get(audit.LoadKey(stolen))(t)
			d.check(t, "before the rotation")
			changes := 0
			first := d.rotation(t)
			first.reached = func() error {
				changes++
				d.check(t, fmt.Sprint("after the change ", changes))
				if changes == n {
					return interruption
				}
				return nil
			}
			switch err := first.Run(t.Context()); {
			case err == nil:
				completed = true
			case !errors.Is(err, interruption):
				t.Fatal(err)
			default:
				if ids, err := audit.InUse(d.public()); err != nil || len(ids) == 1 && ids[0] != former.ID() {
					return // the interruption was after the last change
				}
				second := d.rotation(t)
				second.reached = func() error { d.check(t, "during the second run"); return nil }
				if err := second.Run(t.Context()); err != nil {
					t.Fatalf("the second run: %v", err)
				}
			}
			d.check(t, "after the rotation")
			ids, err := audit.InUse(d.public())
			if err != nil || len(ids) != 1 || ids[0] == former.ID() || ids[0] != d.writers[0].key.ID() {
				t.Errorf("the keys %v are in use, %v", ids, err)
			}
			keys, err := audit.LoadKeys(d.keys)
			if err != nil || len(keys["admin"]) != 2 {
				t.Errorf("%d public keys, %v: want the former one and the new one", len(keys["admin"]), err)
			}
			if err := d.verify(t, checkpoint(t, former, time.Now().Add(clockSkew+time.Minute))); err == nil {
				t.Error("a checkpoint that the former key signed after its end is valid")
			}
			if _, err := os.Stat(d.key + ".next"); !os.IsNotExist(err) {
				t.Errorf("the next private key is left: %v", err)
			}
		})
	}
}

// TestVerifierWithoutTheNewKeyStopsTheRotation publishes the public key of the next key, and the verifier gets it later. No process signs with a key
// that the verifier does not have.
func TestVerifierWithoutTheNewKeyStopsTheRotation(t *testing.T) {
	d := deployAudit(t)
	former := d.writers[0].key.ID()
	d.verified = t.TempDir()
	arrive := func() { copyFile(t, d.public(), filepath.Join(d.verified, "admin.pem")) }
	arrive()
	for range 2 { // it is also waited for if the command is repeated
		if err := d.rotation(t).Run(t.Context()); !errors.Is(err, ErrNotYet) || !strings.Contains(err.Error(), d.verifier+" must read the public key") {
			t.Fatalf("without the public key: %v", err)
		}
		if key, err := audit.LoadKey(d.key); err != nil || key.ID() != former {
			t.Fatalf("the private key was replaced before the verifier has its public key: %v", err)
		}
	}
	arrive()
	if err := d.rotation(t).Run(t.Context()); err != nil || d.writers[0].key.ID() == former {
		t.Errorf("with the public key: %v", err)
	}
}

// TestUnsafeAuditRotationsAreRefused checks that a refused rotation changes no key.
func TestUnsafeAuditRotationsAreRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		prepare func(t *testing.T, d *auditDeployment, r *AuditRotation)
		want    string
	}{
		"a process signs with another key": {func(t *testing.T, d *auditDeployment, _ *AuditRotation) {
			d.writers[1].key = must.Get(audit.GenerateKey())(t)
		}, "does not use"},
		"the public key is missing": {func(t *testing.T, d *auditDeployment, _ *AuditRotation) {
			other, err := audit.GenerateKey()
			must.Do(t, errors.Join(err, os.Remove(d.public()), other.Publish(d.public())))
		}, "does not have the public key"},
		"the verifier has only keys of another service": {func(t *testing.T, d *auditDeployment, _ *AuditRotation) {
			d.verified = t.TempDir()
			copyFile(t, d.public(), filepath.Join(d.verified, "backend.pem"))
		}, "must read the public key"},
		"no verifier is named": {func(_ *testing.T, _ *auditDeployment, r *AuditRotation) { r.Verifiers = nil }, "of admin"},
		"no process is named":  {func(_ *testing.T, _ *auditDeployment, r *AuditRotation) { r.Replicas = nil }, "--replica"},
	} {
		t.Run(reason, func(t *testing.T) {
			d := deployAudit(t)
			r := d.rotation(t)
			c.prepare(t, d, r)
			before := must.Get(audit.InUse(d.public()))(t)
			if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
			if after, err := audit.InUse(d.public()); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the public keys are %v, before %v: %v", after, before, err)
			}
			if _, err := os.Stat(d.key + ".next"); !os.IsNotExist(err) {
				t.Errorf("a private key was created: %v", err)
			}
		})
	}
}
