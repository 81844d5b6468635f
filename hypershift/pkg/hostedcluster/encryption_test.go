package hostedcluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func key(version string) *encryptionKey {
	return &encryptionKey{Provider: "Azure", Azure: azureKey{KeyVaultName: "vault", KeyName: "key", KeyVersion: version}}
}

// rotateToEnd advances a rotation until no step is due, and returns the reasons of the condition in order. It runs in a synctest bubble.
func rotateToEnd(t *testing.T, e encryption, desired *encryptionKey, scale schedule.Scale) (encryption, []string) {
	t.Helper()
	var reasons []string
	for range 50 {
		next, wait := e.advance(desired, scale, time.Now())
		_, reason, _ := next.condition()
		if len(reasons) == 0 || reasons[len(reasons)-1] != reason {
			reasons = append(reasons, reason)
		}
		if wait == 0 {
			return next, reasons
		}
		e = next
		time.Sleep(wait)
	}
	t.Fatal("the rotation does not end")
	return e, nil
}

func TestRotation(t *testing.T) {
	for name, scale := range map[string]schedule.Scale{"Observed": 1, "Fastest": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, reasons := rotateToEnd(t, encryption{}, key("v1"), scale)
				if *e.Status.ActiveKey != *key("v1") || len(e.Status.History) != 0 || len(reasons) != 1 {
					t.Fatalf("the first key caused a rotation: %+v, %v", e.Status, reasons)
				}
				began := time.Now()
				e, reasons = rotateToEnd(t, e, key("v2"), scale)
				want := []string{"ReadOnlyRolloutInProgress", "WritePromotionInProgress", "ReEncryptionInProgress", "ReEncryptionCompleted"}
				if len(reasons) != len(want) {
					t.Fatalf("reasons %v, want %v", reasons, want)
				}
				for i := range want {
					if reasons[i] != want[i] {
						t.Errorf("reasons %v, want %v", reasons, want)
					}
				}
				status, _, _ := e.condition()
				if h := e.Status.History; *e.Status.ActiveKey != *key("v2") || e.Status.TargetKey != nil || len(h) != 1 || h[0].State != rotationCompleted ||
					h[0].CompletionTime == nil || h[0].From != key("v1").reference() || h[0].To != key("v2").reference() || status != metav1.ConditionTrue {
					t.Errorf("%+v", e.Status)
				}
				if took := time.Since(began); scale == 1 && took != schedule.KeyDeploy+schedule.KeyPromote+schedule.KeyMigrate {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// TestRotationFinishesBeforeTheNext checks that a rotation is finished before the next one begins, because data may
// still be encrypted with the previous key.
func TestRotationFinishesBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := rotateToEnd(t, encryption{}, key("v1"), 1)
		e, _ = e.advance(key("v2"), 1, time.Now())
		next, wait := e.advance(key("v3"), 1, time.Now())
		if *next.Status.TargetKey != *key("v2") || wait != schedule.KeyDeploy {
			t.Errorf("%+v, %s", next.Status, wait)
		}
		e, _ = rotateToEnd(t, next, key("v3"), 1)
		if *e.Status.ActiveKey != *key("v3") || len(e.Status.History) != 2 {
			t.Errorf("%+v", e.Status)
		}
		for i := range 10 {
			e, _ = rotateToEnd(t, e, key(string(rune('a'+i))), 1)
		}
		if len(e.Status.History) != rotationsKept {
			t.Errorf("%d rotations in the history", len(e.Status.History))
		}
	})
}
