package leaktest

import (
	"strings"
	"testing"
)

func TestLeaksAreFound(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go leaked(stop, stopped)
	if err := findLeaks(0, nil); err == nil || !strings.Contains(err.Error(), "leaktest.leaked") {
		t.Errorf("with a leaked goroutine: %v, want an error with its name", err)
	}
	const allowed = "github.com/hcpmesh/hcpmesh/internal/testing/leaktest.leaked"
	if err := findLeaks(0, []string{allowed}); err != nil {
		t.Errorf("with the leaked goroutine ignored: %v", err)
	}
	close(stop)
	<-stopped
	if err := findLeaks(gracePeriod, nil); err != nil {
		t.Errorf("after the goroutine ended: %v", err)
	}
	if code := Check(3); code != 3 {
		t.Errorf("Check(3) = %d, want 3", code)
	}
}

func leaked(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	<-stop
}
