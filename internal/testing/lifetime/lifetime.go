// Package lifetime chooses the lifetime of a certificate whose end a test awaits at a real server. Such a server has no clock that a test
// could advance, so that the certificate must be used within its lifetime, however slow the machine is.
package lifetime

import (
	"testing"
	"time"
)

// shortest is the first lifetime. It is longer than resolution.
const shortest = 2 * time.Second

// resolution is that of the times in a certificate: a certificate may end so much before its lifetime.
const resolution = time.Second

// Shortest calls use with a lifetime, and with twice as much each time that use fails because the certificate has ended meanwhile. An error of
// use within the lifetime fails the test.
func Shortest(t testing.TB, use func(lifetime time.Duration) error) {
	t.Helper()
	for lifetime := shortest; ; lifetime *= 2 {
		began := time.Now()
		err := use(lifetime)
		if err == nil {
			return
		}
		if time.Since(began) < lifetime-resolution {
			t.Fatalf("with a certificate that has not ended: %v", err)
		}
	}
}
