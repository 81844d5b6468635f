package login

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Store keeps logins in files of one folder, one for each issuer, application, audience and person. Several processes may use it.
type Store struct{ dir string }

// NewStore returns the Store of a folder, which need not exist.
func NewStore(dir string) *Store { return &Store{dir} }

// UserStore returns the Store in the configuration folder of the user.
func UserStore() (*Store, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("finding the folder of logins: %w", err)
	}
	return NewStore(filepath.Join(config, "hcpmesh", "logins")), nil
}

// path returns the file of a login.
func (s *Store) path(l *Login) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{l.Issuer, l.ClientID, l.Audience, l.TenantID, l.ObjectID}, "\n")))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16])+".json")
}

// read reads a login. It refuses a file that other users can read. The error is fs.ErrNotExist if there is none.
func read(file string) (*Login, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the login in %s can be read by other users; remove the file and run `hcpctl login` again", file)
	}
	l := &Login{}
	if err := json.NewDecoder(opened).Decode(l); err != nil {
		// The decoder's error may contain a part of the file.
		return nil, fmt.Errorf("%s is not a login; remove the file and run `hcpctl login` again", file)
	}
	return l, nil
}

// List returns the logins that match, the newest sign-in first.
func (s *Store) List(match func(*Login) bool) ([]*Login, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var found []*Login
	for _, file := range files {
		l, err := read(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case match(l):
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *Login) int { return b.SignInTime.Compare(a.SignInTime) })
	return found, nil
}

// Save stores a login.
func (s *Store) Save(l *Login) error {
	unlock, err := s.lock(l)
	if err != nil {
		return err
	}
	defer unlock()
	return s.write(l)
}

// write replaces the file of a login. The caller holds its lock.
func (s *Store) write(l *Login) error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := disk.Replace(s.path(l), content, 0o600); err != nil {
		return fmt.Errorf("storing the login: %w", err)
	}
	return nil
}

// Remove removes a login. It is idempotent.
func (s *Store) Remove(l *Login) error {
	unlock, err := s.lock(l)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(s.path(l)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the login: %w", err)
	}
	return nil
}

// lock waits until no other process changes a login. The file of the lock stays, because another process may wait for it.
func (s *Store) lock(l *Login) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("locking the login: %w", err)
	}
	lock, err := os.OpenFile(s.path(l)+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the login: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the login: %w", err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
