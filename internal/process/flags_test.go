package process

import (
	"cmp"
	"errors"
	"testing"
	"time"
)

func TestRules(t *testing.T) {
	for want, err := range map[string]error{
		"--listen is required":           Required("listen", ""),
		"--lease: 1ms is less than 1s":   AtLeast("lease", time.Millisecond, time.Second),
		"--workers: 0 is not 1 to 256":   Between("workers", 0, 1, 256),
		"--ratio: 1.5 is not 0 to 1":     Between("ratio", 1.5, 0, 1),
		"--url: no host":                 Named("url", errors.New("no host")),
		"--a excludes b":                 ErrorIf(true, "--%s excludes %s", "a", "b"),
		"--second is required":           cmp.Or(Required("first", "x"), Required("second", ""), Required("third", "")),
		"--workers: 257 is not 1 to 256": Between("workers", 257, 1, 256),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := cmp.Or(Required("listen", "x"), AtLeast("lease", 1, 1), Between("workers", 256, 1, 256), Between("workers", 1, 1, 256), Named("url", nil), ErrorIf(false, "no")); err != nil {
		t.Error(err)
	}
}
