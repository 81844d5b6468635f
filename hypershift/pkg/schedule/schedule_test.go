package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPhases follows the schedule as a reconciler does: it looks, sleeps for as long as it is told to, and looks again.
func TestPhases(t *testing.T) {
	type seen struct {
		Phase Phase
		After time.Duration
	}
	cases := map[string]struct {
		reason string
		scale  Scale
		want   []seen
	}{
		"RealTime": {
			reason: "scale 1 replays what was observed",
			scale:  1,
			want: []seen{{Accepted, 0}, {Infrastructure, 15 * time.Second}, {Kubeconfig, time.Minute}, {EtcdMissing, 100 * time.Second}, {EtcdQuorum, 105 * time.Second},
				{APIServerMissing, 135 * time.Second}, {APIServerStarting, 140 * time.Second}, {LoadBalancer, 150 * time.Second}, {Components, 160 * time.Second}, {Done, 300 * time.Second}},
		},
		"TenTimesFaster": {
			reason: "every phase shrinks alike",
			scale:  0.1,
			want: []seen{{Accepted, 0}, {Infrastructure, 1500 * time.Millisecond}, {Kubeconfig, 6 * time.Second}, {EtcdMissing, 10 * time.Second}, {EtcdQuorum, 10500 * time.Millisecond},
				{APIServerMissing, 13500 * time.Millisecond}, {APIServerStarting, 14 * time.Second}, {LoadBalancer, 15 * time.Second}, {Components, 16 * time.Second}, {Done, 30 * time.Second}},
		},
		"AtOnce": {
			reason: "scale 0 waits for nothing",
			scale:  0,
			want:   []seen{{Done, 0}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []seen
				for {
					phase, wait := c.scale.Elapsed(time.Since(began))
					got = append(got, seen{phase, time.Since(began)})
					if wait == 0 {
						break
					}
					time.Sleep(wait)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.reason, diff)
				}
			})
		})
	}
}

func TestWaves(t *testing.T) {
	for name, follow := range map[string]func(time.Duration) (Wave, time.Duration){"Creation": Scale(1).Creation, "Upgrade": Scale(1).Upgrade} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for want := Wave(-1); ; want++ {
					wave, wait := follow(time.Since(began))
					if wave != want {
						t.Fatalf("after %s: wave %d instead of %d", time.Since(began), wave, want)
					}
					if wait == 0 {
						if wave != WaveOperators {
							t.Errorf("the last wave is %d", wave)
						}
						return
					}
					time.Sleep(wait)
				}
			})
		})
	}
	if wave, wait := Scale(0).Upgrade(0); wave != WaveOperators || wait != 0 {
		t.Errorf("at scale 0 an upgrade is at wave %d for another %s", wave, wait)
	}
}

func TestPhaseBeforeTheBeginning(t *testing.T) {
	// The API server truncates creation times to seconds, and clocks of two machines differ.
	if phase, wait := Scale(1).Elapsed(-time.Second); phase != Accepted || wait != 16*time.Second {
		t.Errorf("phase %d, wait %s", phase, wait)
	}
}

func TestSooner(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {1, 0, 1}, {0, 2, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := Sooner(c.a, c.b); got != c.want {
			t.Errorf("Sooner(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
