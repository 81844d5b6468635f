// Package leaktest enforces in tests that every goroutine has an owner that waits for it. TestMain passes its exit code to
// Check, which fails the package if goroutines are still running after the last test: those that a Run, Close or Stop did
// not wait for, and those that a test did not stop.
//
//	func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }
package leaktest

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"go.uber.org/goleak"
)

// gracePeriod is the time for goroutines to end that nothing can wait for, for example those of a closed connection.
// Check only waits while goroutines are left.
const gracePeriod = 30 * time.Second

// permanent lists the functions of libraries that run in one goroutine for the whole process.
var permanent = []string{
	"k8s.io/klog/v2.(*flushDaemon).run.func1",
	"go.opencensus.io/stats/view.(*worker).start",
}

// Check returns code. If code is 0 and goroutines are left, it prints them and returns 1. ignored lists functions that may
// still be running, by their full names as in stack traces.
func Check(code int, ignored ...string) int {
	if code != 0 {
		return code
	}
	if err := findLeaks(gracePeriod, ignored); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left after the last test:", err)
		return 1
	}
	return 0
}

// findLeaks waits up to gracePeriod until no goroutines are left, and returns an error that lists those that are.
func findLeaks(gracePeriod time.Duration, ignored []string) error {
	var options []goleak.Option
	for _, list := range [][]string{permanent, ignored} {
		for _, function := range list {
			options = append(options, goleak.IgnoreAnyFunction(function))
		}
	}
	for deadline := time.Now().Add(gracePeriod); ; {
		// The default client is shared, so no test owns its connections.
		http.DefaultClient.CloseIdleConnections()
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
