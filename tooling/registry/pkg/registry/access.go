package registry

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// minPassword is the minimum length of a password in bytes. Nobody types it.
const minPassword = 16

// Policy has the credentials of readers and of writers. Nodes read; pipelines also write.
type Policy struct {
	// Read are the credentials of readers; nil means that everybody may read.
	Read *Credentials
	// Write are the credentials of writers, who may also read; nil means that nobody may write, or everybody if Open is set.
	Write *Credentials
	Open  bool
}

// Credentials are a user name and a password in a file, as USER:PASSWORD. The file may be replaced while the process runs.
type Credentials struct {
	value *disk.Value[[sha256.Size]byte]
}

// LoadCredentials reads credentials. The error does not contain them.
func LoadCredentials(file string) (*Credentials, error) {
	value, err := disk.NewValue(func() ([sha256.Size]byte, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		line := strings.TrimSuffix(string(text), "\n")
		user, password, found := strings.Cut(line, ":")
		switch {
		case !found || user == "" || strings.ContainsAny(line, "\n\r"):
			return [sha256.Size]byte{}, errors.New(file + " is not one line USER:PASSWORD")
		case len(password) < minPassword:
			return [sha256.Size]byte{}, fmt.Errorf("%s: the password is shorter than %d bytes", file, minPassword)
		}
		return sha256.Sum256([]byte(line)), nil
	}, file)
	if err != nil {
		return nil, err
	}
	return &Credentials{value}, nil
}

// match reports whether a request has the credentials.
func (c *Credentials) match(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	if c == nil || !ok {
		return false
	}
	got, want := sha256.Sum256([]byte(user+":"+password)), c.value.Current()
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// Decision is the answer to a request.
type Decision int

// The decisions.
const (
	Allowed Decision = iota
	// Unauthenticated means that other credentials may be accepted.
	Unauthenticated
	// Denied means that no credentials are accepted.
	Denied
)

// Decide returns the decision for a request.
func (p Policy) Decide(r *http.Request) Decision {
	_, _, given := r.BasicAuth()
	switch {
	case p.Write.match(r):
		return Allowed
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		if p.Read.match(r) || (p.Read == nil && !given) || (p.Read == nil && p.Write == nil) {
			return Allowed
		}
		return Unauthenticated // also for wrong credentials, so that a writer notices them at once
	case p.Write == nil && p.Open:
		return Allowed
	case p.Write == nil || p.Read.match(r):
		return Denied
	}
	return Unauthenticated
}
