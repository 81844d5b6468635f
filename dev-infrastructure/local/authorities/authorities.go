// Package authorities stores the certificate authority of a local region, and replaces it by another one in steps, so that at each time
// all processes trust the authority of every certificate in use. The steps are durable: after a crash, Open returns the step that was
// reached, and the next Advance continues.
package authorities

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Step is a step of a replacement. In each step, the region distributes what Bundle returns and issues with Signer before it advances.
type Step string

// The steps of a replacement, in their order.
const (
	// None: one authority is trusted and issues.
	None Step = ""
	// Trusting: the next authority is trusted too, and the previous one still issues.
	Trusting Step = "Trusting"
	// Issuing: both are trusted, and the next one issues.
	Issuing Step = "Issuing"
	// Removing: only the next one is trusted, and issues.
	Removing Step = "Removing"
)

// Files and folders of the store, besides those of package authority.
const (
	nextDir    = "next"
	recordFile = "rotation.json"
)

// Store is the folder of a region's authority. The file ca.crt in it contains the trusted authorities. It is not safe for concurrent use,
// and only one process may use the folder.
type Store struct {
	dir, trustDomain string
	step             Step
	current, next    *mesh.Authority
}

// Open opens the folder, or creates it with a new authority. It completes what a crash interrupted in Advance.
func Open(dir, trustDomain string) (*Store, error) {
	s := &Store{dir: dir, trustDomain: trustDomain}
	var err error
	if s.step, err = s.readStep(); err != nil {
		return nil, err
	}
	if s.step != None {
		if s.next, err = s.readNext(); err != nil {
			return nil, err
		}
	}
	if s.step != Removing {
		// While the step is Removing, the files of the previous authority are being replaced, and nobody needs it.
		if s.current, err = mesh.OpenAuthority(dir, trustDomain); err != nil {
			return nil, err
		}
	}
	return s, s.writeBundle()
}

func (s *Store) readStep() (Step, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return None, nil
	}
	if err != nil {
		return None, err
	}
	var record struct {
		Step Step `json:"step"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return None, fmt.Errorf("%s: %w", recordFile, err)
	}
	switch record.Step {
	case Trusting, Issuing, Removing:
		return record.Step, nil
	}
	return None, fmt.Errorf("%s: step: unknown value %q", recordFile, record.Step)
}

func (s *Store) readNext() (*mesh.Authority, error) {
	dir := filepath.Join(s.dir, nextDir)
	// OpenAuthority would create a missing one, which nobody trusts.
	if _, err := os.Stat(filepath.Join(dir, authority.CertificateFile)); err != nil {
		return nil, fmt.Errorf("the next authority of the step %s: %w", s.step, err)
	}
	return mesh.OpenAuthority(dir, s.trustDomain)
}

// Step returns the step that was reached.
func (s *Store) Step() Step { return s.step }

// Signer returns the authority that issues.
func (s *Store) Signer() *mesh.Authority {
	if s.step == Issuing || s.step == Removing {
		return s.next
	}
	return s.current
}

// Bundle returns the trusted authorities in PEM, the previous one first.
func (s *Store) Bundle() []byte {
	switch s.step {
	case Trusting, Issuing:
		return bytes.Join([][]byte{s.current.CertificatePEM(), s.next.CertificatePEM()}, nil)
	case Removing:
		return s.next.CertificatePEM()
	case None:
	}
	return s.current.CertificatePEM()
}

// Advance goes to the next step. From None it creates the next authority, and after Removing it returns to None.
func (s *Store) Advance() error {
	switch s.step {
	case None:
		return s.begin()
	case Trusting:
		return s.enter(Issuing)
	case Issuing:
		return s.enter(Removing)
	}
	return s.finish()
}

func (s *Store) begin() error {
	dir := filepath.Join(s.dir, nextDir)
	// A replacement that ended, or one that did not begin, can have left it.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	next, err := mesh.OpenAuthority(dir, s.trustDomain)
	if err != nil {
		return err
	}
	s.next = next
	return s.enter(Trusting)
}

func (s *Store) enter(step Step) error {
	text, err := json.Marshal(map[string]Step{"step": step})
	if err != nil {
		return err
	}
	if err := authority.WriteDurably(filepath.Join(s.dir, recordFile), text, 0o600); err != nil {
		return err
	}
	s.step = step
	return s.writeBundle()
}

// finish gives the next authority the place of the previous one.
func (s *Store) finish() error {
	next := filepath.Join(s.dir, nextDir)
	key, err := os.ReadFile(filepath.Join(next, authority.KeyFile))
	if err != nil {
		return err
	}
	if err := authority.WriteDurably(filepath.Join(s.dir, authority.KeyFile), key, 0o600); err != nil {
		return err
	}
	if err := s.writeBundle(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.dir, recordFile)); err != nil {
		return err
	}
	s.step, s.current, s.next = None, s.next, nil
	return os.RemoveAll(next)
}

// writeBundle writes the trusted authorities to ca.crt, unless it has them.
func (s *Store) writeBundle() error {
	path, bundle := filepath.Join(s.dir, authority.CertificateFile), s.Bundle()
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, bundle) {
		return nil
	}
	if block, _ := pem.Decode(bundle); block == nil {
		return errors.New("no authority is trusted")
	}
	return authority.WriteDurably(path, bundle, 0o644)
}
