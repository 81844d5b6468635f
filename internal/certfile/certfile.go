// Package certfile reads certificates, keys and trusted authorities from files that are replaced while a process runs, as Istio, the
// Secrets Store CSI driver and the supervisor of a local region do. The files are compared before each use, so that each TLS handshake
// uses the current ones. While a replacement is incomplete or invalid, the previous content stays in use.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
)

// watched is a value that is read from files. It is safe for concurrent use.
type watched[T any] struct {
	files []string
	read  func() (T, error)

	mu sync.Mutex
	// seen are the files before value was read from them, so that a replacement during the read is noticed by the next call.
	seen  []os.FileInfo
	value T
}

// watch reads a value. It returns an error if the value cannot be read.
func watch[T any](read func() (T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{files: files, read: read}
	w.seen = w.stat()
	var err error
	w.value, err = read()
	return w, err
}

// current returns the value of the current files, or the previous one if they cannot be read.
func (w *watched[T]) current() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.stat()
	if sameFiles(now, w.seen) {
		return w.value
	}
	if value, err := w.read(); err == nil {
		w.value, w.seen = value, now
	}
	return w.value
}

// stat returns an entry for each file, which is nil if the file cannot be read.
func (w *watched[T]) stat() []os.FileInfo {
	infos := make([]os.FileInfo, len(w.files))
	for i, file := range w.files {
		if info, err := os.Stat(file); err == nil {
			infos[i] = info
		}
	}
	return infos
}

// sameFiles reports whether the files are the same and were not written. A replacement can be older than its predecessor.
func sameFiles(a, b []os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			return false
		}
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

// Pair is a certificate with its key. It is safe for concurrent use.
type Pair struct{ *watched[*tls.Certificate] }

// LoadPair reads a certificate and its key from PEM files.
func LoadPair(certificateFile, keyFile string) (*Pair, error) {
	w, err := watch(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
		return &pair, err
	}, certificateFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &Pair{w}, nil
}

// Certificate returns the current certificate.
func (p *Pair) Certificate() *tls.Certificate { return p.current() }

// ServerConfig returns a configuration for servers that accept clients without a certificate.
func (p *Pair) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.Certificate(), nil }}
}

// Roots are the authorities that a process trusts. They are safe for concurrent use.
type Roots struct{ *watched[*x509.CertPool] }

// LoadRoots reads authorities from a file with PEM certificates.
func LoadRoots(file string) (*Roots, error) {
	w, err := watch(func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s contains no certificate", file)
		}
		return pool, nil
	}, file)
	if err != nil {
		return nil, err
	}
	return &Roots{w}, nil
}

// Pool returns the current authorities. The pool must not be changed.
func (r *Roots) Pool() *x509.CertPool { return r.current() }
