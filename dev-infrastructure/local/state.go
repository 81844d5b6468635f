package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// state is the state folder of a region.
type state struct {
	dir    string
	lock   *os.File
	record record
}

// record is the data that a region stores between runs, in region.json.
type record struct {
	BasePort int `json:"basePort"`
	// PostgresDir is the data directory of PostgreSQL: below the state folder unless its user cannot access that.
	PostgresDir string `json:"postgresDir"`
	// Location, TrustDomain and ManagementClusters cannot change while the state folder exists.
	Location           string   `json:"location"`
	TrustDomain        string   `json:"trustDomain"`
	ManagementClusters []string `json:"managementClusters"`
	// With are the optional parts of the last start, so that Describe returns their endpoints.
	With []string `json:"with,omitempty"`
}

// AlreadyRunning is the error for a state folder that another supervisor uses.
type AlreadyRunning struct {
	StateDir string
	// Pid is the process ID of the other supervisor; 0 if it is unknown.
	Pid int
}

// Error returns the message, which states how to stop the other supervisor.
func (e *AlreadyRunning) Error() string {
	return fmt.Sprintf("the region in %s is already running (pid %d): see `hcpctl region status`, stop it with `hcpctl region down`, or choose another folder with --state-dir", e.StateDir, e.Pid)
}

// openState creates or opens the folder and locks it until close.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the region's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the region's folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking the region's folder %s: %w", dir, err)
		}
		holder, _ := os.ReadFile(lock.Name())
		pid, _ := strconv.Atoi(strings.TrimSpace(string(holder)))
		return nil, &AlreadyRunning{StateDir: dir, Pid: pid}
	}
	s := &state{dir: dir, lock: lock}
	if err := s.writeLock(strconv.Itoa(os.Getpid())); err != nil {
		s.close()
		return nil, err
	}
	data, err := os.ReadFile(s.path("region.json"))
	if os.IsNotExist(err) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s.record)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("reading region.json of the region in %s: %w", dir, err)
	}
	return s, nil
}

func (s *state) writeLock(text string) error {
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("writing the lock of the region's folder: %w", err)
	}
	if _, err := s.lock.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("writing the lock of the region's folder: %w", err)
	}
	return nil
}

func (s *state) close() { _ = s.lock.Close() }

// Lock creates or locks a state folder for a region that another program runs. It returns *AlreadyRunning if a region uses the folder.
func Lock(stateDir string) (release func(), err error) {
	s, err := openState(stateDir)
	if err != nil {
		return nil, err
	}
	return s.close, nil
}

// path returns the path of a file or folder in the state folder.
func (s *state) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// reconcile updates the record with the configuration and stores it. It returns an error if a fixed setting differs.
func (s *state) reconcile(config *Config, basePort int) error {
	r := &s.record
	clusters := config.managementClusters()
	switch {
	case r.TrustDomain != "" && r.TrustDomain != config.TrustDomain:
		return fmt.Errorf("trustDomain: the region in %s is %q, not %q; remove it with `hcpctl region down --purge` first", s.dir, r.TrustDomain, config.TrustDomain)
	case r.Location != "" && r.Location != config.Location:
		return fmt.Errorf("location: the region in %s is in %q, not %q; remove it with `hcpctl region down --purge` first", s.dir, r.Location, config.Location)
	case len(r.ManagementClusters) > len(clusters):
		return fmt.Errorf("managementClusters: the region in %s has %d already; remove it with `hcpctl region down --purge` first", s.dir, len(r.ManagementClusters))
	}
	r.TrustDomain, r.Location, r.ManagementClusters, r.BasePort, r.With = config.TrustDomain, config.Location, clusters, basePort, config.With
	if r.PostgresDir == "" {
		r.PostgresDir = s.choosePostgresDir()
	}
	return s.save()
}

func (s *state) save() error {
	data, err := json.MarshalIndent(s.record, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(s.path("region.json"), append(data, '\n'), 0o644)
}

// choosePostgresDir returns a folder in the state folder if all users can reach it, because PostgreSQL runs as another
// user when root starts the region. Otherwise, for example in a home folder without access for others, it returns a
// folder in /var/tmp.
func (s *state) choosePostgresDir() string {
	if os.Geteuid() != 0 || passable(s.dir) {
		return s.path("postgres")
	}
	sum := sha256.Sum256([]byte(s.dir))
	return filepath.Join("/var/tmp", "hcpmesh-"+hex.EncodeToString(sum[:6]), "postgres")
}

// passable reports whether all users may enter dir, according to the permissions of dir and its parents.
func passable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// Purge removes a region that is not running, with all its data.
func Purge(stateDir string) error {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil
	}
	s, err := openState(dir)
	if err != nil {
		return err
	}
	defer s.close()
	if outside := s.record.PostgresDir; outside != "" && !strings.HasPrefix(outside, s.dir+string(filepath.Separator)) {
		if err := os.RemoveAll(filepath.Dir(outside)); err != nil {
			return fmt.Errorf("removing PostgreSQL's data: %w", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the region's folder: %w", err)
	}
	return nil
}

// replaceFile writes a file atomically: a reader sees the old content or the new.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	part := path + ".part"
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	if err := os.Chmod(part, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// Free reports whether no supervisor uses the state folder.
func Free(stateDir string) (bool, error) {
	lock, err := os.Open(filepath.Join(stateDir, "lock"))
	if os.IsNotExist(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
