// Package authorities stores a certificate authority of a local region, and replaces it by another one in steps, so that at each time
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

// Authority issues certificates. Its files are those of package authority.
type Authority interface {
	// CertificatePEM returns its own certificate.
	CertificatePEM() []byte
}

// Store is the folder of an authority. The file ca.crt in it contains the trusted authorities. It is not safe for concurrent use, and only
// one process may use the folder.
type Store[A Authority] struct {
	dir           string
	open          func(dir string) (A, error)
	step          Step
	current, next A
}

// Open opens the folder, or creates it with a new authority. It completes what a crash interrupted in Advance. The function open opens the
// authority in a folder, or creates one.
func Open[A Authority](dir string, open func(dir string) (A, error)) (*Store[A], error) {
	s := &Store[A]{dir: dir, open: open}
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
		if s.current, err = open(dir); err != nil {
			return nil, err
		}
	}
	return s, s.writeBundle()
}

func (s *Store[A]) readStep() (Step, error) {
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

func (s *Store[A]) readNext() (A, error) {
	dir := filepath.Join(s.dir, nextDir)
	// open would create a missing one, which nobody trusts.
	if _, err := os.Stat(filepath.Join(dir, authority.CertificateFile)); err != nil {
		var none A
		return none, fmt.Errorf("the next authority of the step %s: %w", s.step, err)
	}
	return s.open(dir)
}

// Step returns the step that was reached.
func (s *Store[A]) Step() Step { return s.step }

// SignerKey returns the private key of Signer in PEM.
func (s *Store[A]) SignerKey() ([]byte, error) {
	dir := s.dir
	if s.step == Issuing || s.step == Removing {
		dir = filepath.Join(dir, nextDir)
	}
	return os.ReadFile(filepath.Join(dir, authority.KeyFile))
}

// Signer returns the authority that issues.
func (s *Store[A]) Signer() A {
	if s.step == Issuing || s.step == Removing {
		return s.next
	}
	return s.current
}

// Bundle returns the trusted authorities in PEM, the previous one first.
func (s *Store[A]) Bundle() []byte {
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
func (s *Store[A]) Advance() error {
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

func (s *Store[A]) begin() error {
	dir := filepath.Join(s.dir, nextDir)
	// A replacement that ended, or one that did not begin, can have left it.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	next, err := s.open(dir)
	if err != nil {
		return err
	}
	s.next = next
	return s.enter(Trusting)
}

func (s *Store[A]) enter(step Step) error {
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
func (s *Store[A]) finish() error {
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
	var none A
	s.step, s.current, s.next = None, s.next, none
	return os.RemoveAll(next)
}

// writeBundle writes the trusted authorities to ca.crt, unless it has them.
func (s *Store[A]) writeBundle() error {
	path, bundle := filepath.Join(s.dir, authority.CertificateFile), s.Bundle()
	if existing, err := os.ReadFile(path); err == nil && bytes.Equal(existing, bundle) {
		return nil
	}
	if block, _ := pem.Decode(bundle); block == nil {
		return errors.New("no authority is trusted")
	}
	return authority.WriteDurably(path, bundle, 0o644)
}
