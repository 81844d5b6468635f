// Package must ends a test at the first error of its set-up and of its steps.
package must

// TB is the part of testing.TB that fails a test. Tests of other packages, such as rapid.T, have it too.
type TB interface {
	Helper()
	Fatal(arguments ...any)
}

// Do fails the test with Fatal if err is not nil.
func Do(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call, for example must.Get(os.ReadFile(name))(t). The second call fails the test with Fatal for the error of
// the first one.
func Get[T any](value T, err error) func(t TB) T {
	return func(t TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}
