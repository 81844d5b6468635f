// Package must ends a test at the first error of its set-up and of its steps.
package must

import "testing"

// Do fails the test with Fatal if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call, for example must.Get(os.ReadFile(name))(t). The second call fails the test with Fatal for the error of
// the first one.
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}
