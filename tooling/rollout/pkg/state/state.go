// Package state stores how far the rollout of a region or of an environment is.
//
// Each target has a folder with one JSON file, the logs of its steps and a lock. The file is replaced as a whole: it is written beside
// the old one, synchronized with the disk and renamed, so that a reader never finds half of it, also after a crash. A rollout writes
// it before and after each step. The file contains no secrets: inputs that are secrets are stored as their references.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// Status is the state of a step.
type Status string

// The states of a step.
const (
	// Running means that an attempt has begun. If no rollout runs, the step was interrupted.
	Running Status = "running"
	// Succeeded means that the action and all gates succeeded.
	Succeeded Status = "succeeded"
	// Failed means that the action or a gate failed, and nothing was rolled back.
	Failed Status = "failed"
	// RollingBack means that a rollback has begun. If no rollout runs, it was interrupted.
	RollingBack Status = "rolling back"
	// RolledBack means that the step failed and was rolled back to its last success.
	RolledBack Status = "rolled back"
	// RollbackFailed means that the step failed, and its rollback too.
	RollbackFailed Status = "rollback failed"
	// Deleting means that the deletion of what the step has deployed has begun. The record of a failed deletion has its error. The end of the deletion
	// deletes the record.
	Deleting Status = "deleting"
)

// Content identifies everything that a step depends on.
type Content struct {
	// Definition is the hash of the step's definition.
	Definition string `json:"definition"`
	// Inputs are the values of the inputs. A secret is its reference.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Files are the hashes of files and folders.
	Files map[string]string `json:"files,omitempty"`
	// Action are the hashes of what the action reads besides, by name.
	Action map[string]string `json:"action,omitempty"`
}

// Record is the state of one step.
type Record struct {
	Status  Status    `json:"status"`
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
	// Ended is zero while the step runs.
	Ended time.Time `json:"ended,omitzero"`
	// Error is the error of a failed step.
	Error string `json:"error,omitempty"`
	// Content and Outputs are those of the last success; Content is nil if there is none.
	Content *Content          `json:"content,omitempty"`
	Outputs map[string]string `json:"outputs,omitempty"`
}

// File is the state of a target.
type File struct {
	Version int    `json:"version"`
	Target  string `json:"target"`
	// Stores are the keys of data stores and clusters with their values, by target, at the last rollout.
	Stores map[string]map[string]string `json:"stores,omitempty"`
	// Deleting lists the targets that a command has begun to delete. It begins only if all deletion gates of a target are open. A rollout clears the list.
	Deleting []string          `json:"deleting,omitempty"`
	Steps    map[string]Record `json:"steps"`
}

// version is the version of the file's format.
const version = 1

const fileName = "state.json"

// Store is the state of one target. Its methods may be called concurrently.
type Store struct {
	dir  string
	mu   sync.Mutex
	file File
}

// Open reads the state of a target. A target without state has an empty one.
func Open(dir string, target layer.Target) (*Store, error) {
	s := &Store{dir: filepath.Join(dir, filepath.FromSlash(target.String())), file: File{Version: version, Target: target.String(), Steps: map[string]Record{}}}
	text, err := os.ReadFile(filepath.Join(s.dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of %s: %w", target, err)
	}
	var file File
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("reading the state of %s: %s: %w", target, filepath.Join(s.dir, fileName), err)
	}
	if file.Version != version || file.Target != target.String() {
		return nil, fmt.Errorf("reading the state of %s: %s has version %d and target %q; this program needs version %d", target, filepath.Join(s.dir, fileName), file.Version, file.Target, version)
	}
	if file.Steps == nil {
		file.Steps = map[string]Record{}
	}
	s.file = file
	return s, nil
}

// Dir returns the folder of the target.
func (s *Store) Dir() string { return s.dir }

// Step returns the record of a step, and whether it has one.
func (s *Store) Step(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.file.Steps[id]
	return r, found
}

// Steps returns all records.
func (s *Store) Steps() map[string]Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.file.Steps)
}

// Put stores the record of a step. It is on the disk when Put returns.
func (s *Store) Put(id string, r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := maps.Clone(s.file.Steps)
	steps[id] = r
	next := s.file
	next.Steps = steps
	return s.write(next)
}

// Delete deletes the record of a step, which has then not run. The change is on the disk when Delete returns.
func (s *Store) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := maps.Clone(s.file.Steps)
	delete(steps, id)
	next := s.file
	next.Steps = steps
	return s.write(next)
}

// Stores returns the keys of data stores and clusters at the last rollout.
func (s *Store) Stores() map[string]map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Stores
}

// PutStores stores the keys of data stores and clusters of a rollout that begins. The rollout ends all deletions that have begun.
func (s *Store) PutStores(stores map[string]map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file
	next.Stores, next.Deleting = stores, nil
	return s.write(next)
}

// DeletionBegun reports whether the deletion of a target, or of one that contains it, has begun and has not ended.
func (s *Store) DeletionBegun(target layer.Target) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.file.Deleting, func(name string) bool { return targetOf(name).Contains(target) })
}

// targetOf returns the target with a name in the file.
func targetOf(name string) layer.Target { return strings.Split(name, "/") }

// BeginDeletion stores that the deletion of a target has begun. It is idempotent.
func (s *Store) BeginDeletion(target layer.Target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.file.Deleting, target.String()) {
		return nil
	}
	next := s.file
	next.Deleting = append(slices.Clone(next.Deleting), target.String())
	return s.write(next)
}

// EndDeletion stores that a target and those within it were deleted: they have neither data stores nor clusters.
func (s *Store) EndDeletion(target layer.Target) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file
	next.Stores = maps.Clone(next.Stores)
	within := func(name string) bool { return target.Contains(targetOf(name)) }
	maps.DeleteFunc(next.Stores, func(name string, _ map[string]string) bool { return within(name) })
	next.Deleting = slices.DeleteFunc(slices.Clone(next.Deleting), within)
	return s.write(next)
}

// write replaces the file. The caller holds the mutex.
func (s *Store) write(next File) error {
	text, err := json.MarshalIndent(next, "", "  ")
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = disk.Replace(filepath.Join(s.dir, fileName), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("storing the state of %s: %w", next.Target, err)
	}
	s.file = next
	return nil
}
