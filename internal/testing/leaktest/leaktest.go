// Package leaktest is for tests: it holds a package to the rule that every goroutine has an owner who waits for it. A TestMain
// passes its exit code through Check, which looks whether anything still runs after the last test: what a Run, a Close or a
// Stop has left behind when it returned, and what a test has forgotten to stop.
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

// patience is how long something may take to end whose end nobody can wait for, as a connection that was closed. It is only
// ever spent where something is left.
const patience = 30 * time.Second

// forever are functions of libraries that run in goroutines which are started once in a process, and never end.
var forever = []string{
	"k8s.io/klog/v2.(*flushDaemon).run.func1",
	"go.opencensus.io/stats/view.(*worker).start",
}

// Check returns code, or 1 and says why when that is 0 and goroutines are left. More functions that are let run may be named, in
// full, as stacks have them.
func Check(code int, ignored ...string) int {
	if code != 0 {
		return code
	}
	if err := left(patience, ignored); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left when all tests have ended:", err)
		return 1
	}
	return 0
}

func left(patience time.Duration, ignored []string) error {
	var options []goleak.Option
	for _, list := range [][]string{forever, ignored} {
		for _, function := range list {
			options = append(options, goleak.IgnoreAnyFunction(function))
		}
	}
	for deadline := time.Now().Add(patience); ; {
		// Of the client that everybody shares nobody is the owner.
		http.DefaultClient.CloseIdleConnections()
		err := goleak.Find(options...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
