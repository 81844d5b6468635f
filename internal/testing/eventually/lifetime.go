package eventually

import (
	"testing"
	"time"
)

// shortestLifetime is the first lifetime. It is longer than lifetimeResolution.
const shortestLifetime = 2 * time.Second

// lifetimeResolution is that of the times in a certificate: a certificate may end so much before its lifetime.
const lifetimeResolution = time.Second

// WithinLifetime calls use with the lifetime of a certificate, and with twice as much each time that use fails because the certificate has ended
// meanwhile. An error of use within the lifetime fails the test. It is for a test that awaits the end of a certificate at a real server. Such a server
// has no clock that a test could advance, so that the certificate must be used within its lifetime, however slow the machine is.
func WithinLifetime(t testing.TB, use func(lifetime time.Duration) error) {
	t.Helper()
	for lifetime := shortestLifetime; ; lifetime *= 2 {
		began := time.Now()
		err := use(lifetime)
		if err == nil {
			return
		}
		if time.Since(began) < lifetime-lifetimeResolution {
			t.Fatalf("with a certificate that has not ended: %v", err)
		}
	}
}
