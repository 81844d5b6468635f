package leaktest

import (
	"strings"
	"testing"
)

func TestWhatIsLeftIsFound(t *testing.T) {
	end, ended := make(chan struct{}), make(chan struct{})
	go forgotten(end, ended)
	if err := left(0, nil); err == nil || !strings.Contains(err.Error(), "leaktest.forgotten") {
		t.Errorf("found: %v", err)
	}
	const allowed = "github.com/hcpmesh/hcpmesh/internal/testing/leaktest.forgotten"
	if err := left(0, []string{allowed}); err != nil {
		t.Errorf("found although it is let run: %v", err)
	}
	close(end)
	<-ended
	if err := left(patience, nil); err != nil {
		t.Errorf("found after its end: %v", err)
	}
	if code := Check(3); code != 3 {
		t.Errorf("a failure with code 3 became %d", code)
	}
}

func forgotten(end <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	<-end
}
