package authorities_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// open opens an authority of the region's processes.
func open(dir string) (*mesh.Authority, error) { return mesh.OpenAuthority(dir, "local") }

// process is a process of a region: the authorities that it trusts, and that of its certificate.
type process struct{ trusts, certificate []byte }

// region distributes what a store contains to its processes, one after the other, and checks after each change that all processes trust
// the certificates of all.
type region struct {
	t         *testing.T
	dir       string
	processes [2]process
}

func (r *region) open() *authorities.Store[*mesh.Authority] {
	r.t.Helper()
	store := must.Get(authorities.Open(r.dir, open))(r.t)
	file, err := os.ReadFile(filepath.Join(r.dir, "ca.crt"))
	if err != nil || !bytes.Equal(file, store.Bundle()) {
		r.t.Fatalf("step %q: ca.crt is not the bundle: %v", store.Step(), err)
	}
	return store
}

func (r *region) distribute(store *authorities.Store[*mesh.Authority]) {
	r.t.Helper()
	for i := range r.processes {
		r.processes[i].trusts = store.Bundle()
		r.check(store.Step())
	}
	for i := range r.processes {
		r.processes[i].certificate = store.Signer().CertificatePEM()
		r.check(store.Step())
	}
}

func (r *region) check(step authorities.Step) {
	r.t.Helper()
	for _, client := range r.processes {
		for _, server := range r.processes {
			if !bytes.Contains(client.trusts, server.certificate) {
				r.t.Fatalf("in the step %q a process does not trust another one", step)
			}
		}
	}
}

func start(t *testing.T) (*region, *authorities.Store[*mesh.Authority]) {
	t.Helper()
	r := &region{t: t, dir: filepath.Join(t.TempDir(), "ca")}
	store := r.open()
	for i := range r.processes {
		r.processes[i] = process{store.Bundle(), store.Signer().CertificatePEM()}
	}
	return r, store
}

func TestAuthorityIsReplacedInSteps(t *testing.T) {
	r, store := start(t)
	for range 2 {
		before := store.Bundle()
		for _, want := range []authorities.Step{authorities.Trusting, authorities.Issuing, authorities.Removing, authorities.None} {
			must.Do(t, store.Advance())
			if store.Step() != want {
				t.Fatalf("step %q, want %q", store.Step(), want)
			}
			r.distribute(store)
			again := r.open()
			if again.Step() != want || !bytes.Equal(again.Bundle(), store.Bundle()) || !bytes.Equal(again.Signer().CertificatePEM(), store.Signer().CertificatePEM()) {
				t.Errorf("step %q: the store differs after it was opened again", want)
			}
		}
		if bytes.Equal(store.Bundle(), before) {
			t.Error("the authority was not replaced")
		}
		if _, err := os.Stat(filepath.Join(r.dir, "next")); !os.IsNotExist(err) {
			t.Errorf("the folder of the next authority is left: %v", err)
		}
	}
}

// TestReplacementContinuesAfterCrash makes each write of each step fail, as if the process had been killed before it, and opens the store
// again.
func TestReplacementContinuesAfterCrash(t *testing.T) {
	for steps, step := range []string{"None", "Trusting", "Issuing", "Removing"} {
		for _, file := range []string{"ca.crt", "ca.key", "rotation.json", "next/ca.crt", "next/ca.key"} {
			t.Run(step+" "+file, func(t *testing.T) {
				r, store := start(t)
				before := store.Bundle()
				for range steps {
					must.Do(t, store.Advance())
					r.distribute(store)
				}
				// A folder in place of the temporary file makes the write fail.
				obstacle := filepath.Join(r.dir, file) + ".part"
				must.Do(t, os.MkdirAll(obstacle, 0o700))
				failed := store.Advance() != nil
				must.Do(t, os.RemoveAll(obstacle))
				store = r.open()
				if failed && step == "None" && store.Step() == authorities.None {
					// It did not begin.
					if !bytes.Equal(store.Bundle(), before) {
						t.Fatal("the authority changed without a replacement")
					}
				}
				r.distribute(store)
				for first := true; first || store.Step() != authorities.None; first = false {
					if first && store.Step() == authorities.None && !bytes.Equal(store.Bundle(), before) {
						break // It was complete.
					}
					must.Do(t, store.Advance())
					r.distribute(store)
				}
				if bytes.Equal(store.Bundle(), before) || bytes.Contains(store.Bundle(), before) {
					t.Error("the previous authority is still trusted")
				}
			})
		}
	}
}

func TestUnknownStepIsAnError(t *testing.T) {
	r, _ := start(t)
	must.Do(t, os.WriteFile(filepath.Join(r.dir, "rotation.json"), []byte(`{"step":"Later"}`), 0o600))
	if _, err := authorities.Open(r.dir, open); err == nil {
		t.Error("an unknown step is accepted")
	}
}
