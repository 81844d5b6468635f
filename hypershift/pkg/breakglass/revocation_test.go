package breakglass

import (
	"testing"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTimedOutRevocationIsNotVerified checks that a revocation whose previous signer was accepted for too long is given up.
func TestTimedOutRevocationIsNotVerified(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	crr := &certificatesv1alpha1.CertificateRevocationRequest{}
	crr.Status.Conditions = []metav1.Condition{{Type: certificatesv1alpha1.LeafCertificatesRegeneratedType, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-verificationTimeout - time.Second))}}
	v := &revocation{crr: crr, now: now}
	wait, err := v.awaitRefusal(t.Context(), nil, nil)
	c := meta.FindStatusCondition(crr.Status.Conditions, certificatesv1alpha1.PreviousCertificatesRevokedType)
	if err != nil || wait != 0 || c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonVerificationTimeout {
		t.Errorf("the next pass is in %s, %v, and the condition is %+v", wait, err, c)
	}
}
