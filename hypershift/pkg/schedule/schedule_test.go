package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPhases reads the schedule as a reconciler does: it reads the phase, sleeps for the returned time, and reads
// again.
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
			reason: "scale 1 replays the observed durations",
			scale:  1,
			want: []seen{{Accepted, 0}, {Infrastructure, 15 * time.Second}, {Kubeconfig, time.Minute}, {EtcdMissing, 100 * time.Second}, {EtcdQuorum, 105 * time.Second},
				{APIServerMissing, 135 * time.Second}, {APIServerStarting, 140 * time.Second}, {LoadBalancer, 150 * time.Second}, {Components, 160 * time.Second}, {Done, 300 * time.Second}},
		},
		"TenTimesFaster": {
			reason: "every phase is shortened by the same factor",
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
					phase, wait := c.scale.PhaseAfter(time.Since(began))
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
	none := func(Wave) int { return 0 }
	upgrade := func(elapsed time.Duration) (Wave, time.Duration) {
		wave, _, wait := Scale(1).Upgrade(elapsed, none)
		return wave, wait
	}
	for name, wavesAfter := range map[string]func(time.Duration) (Wave, time.Duration){"Creation": Scale(1).Creation, "Upgrade": upgrade} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for want := Wave(-1); ; want++ {
					wave, wait := wavesAfter(time.Since(began))
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
	if wave, ahead, wait := Scale(0).Upgrade(0, none); wave != WaveOperators || ahead != 0 || wait != 0 {
		t.Errorf("at scale 0 an upgrade is at wave %d and %d for another %s", wave, ahead, wait)
	}
}

// TestUpgradeComponents checks that an upgrade rolls out one component after the other, and takes as long as its waves.
func TestUpgradeComponents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := map[Wave]int{WaveFoundation: 3, WaveAPIServer: 1, WaveControllers: 0, WaveOperators: 4}
		began, before, steps := time.Now(), 0, 0
		for {
			wave, ahead, wait := Scale(1).Upgrade(time.Since(began), func(w Wave) int { return sizes[w] })
			done := ahead
			for w := WaveFoundation; w <= wave; w++ {
				done += sizes[w]
			}
			if done-before > 1 || done < before {
				t.Errorf("after %s: %d components after %d", time.Since(began), done, before)
			}
			if wait == 0 {
				if done != 8 || time.Since(began) != upgradeWaves[WaveOperators] {
					t.Errorf("the upgrade ended after %s with %d components", time.Since(began), done)
				}
				return
			}
			if before, steps = done, steps+1; steps > 20 {
				t.Fatal("the upgrade does not end")
			}
			time.Sleep(wait)
		}
	})
}

func TestPhaseBeforeCreation(t *testing.T) {
	// The API server truncates creation times to seconds, and clocks of two machines differ.
	if phase, wait := Scale(1).PhaseAfter(-time.Second); phase != Accepted || wait != 16*time.Second {
		t.Errorf("phase %d, wait %s", phase, wait)
	}
}

func TestShorterWait(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {1, 0, 1}, {0, 2, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := ShorterWait(c.a, c.b); got != c.want {
			t.Errorf("ShorterWait(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
