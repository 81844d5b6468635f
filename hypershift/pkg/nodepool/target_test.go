package nodepool

import (
	"strings"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

func TestUnknownValuesAreErrors(t *testing.T) {
	cases := map[string]func(*hyperv1.NodePool){
		"upgradeType": func(p *hyperv1.NodePool) { p.Spec.Management.UpgradeType = "Guess" },
		"strategy":    func(p *hyperv1.NodePool) { p.Spec.Management.Replace = &hyperv1.ReplaceUpgrade{Strategy: "Guess"} },
		"faults":      func(p *hyperv1.NodePool) { p.Annotations = map[string]string{contract.FaultAnnotation: "Guess"} },
	}
	for field, change := range cases {
		t.Run(field, func(t *testing.T) {
			o := &observation{cluster: &hyperv1.HostedCluster{}}
			pool := &hyperv1.NodePool{}
			if _, err := (&Reconciler{}).target(pool, o); err != nil {
				t.Fatal(err)
			}
			change(pool)
			if _, err := (&Reconciler{}).target(pool, o); err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "Guess") {
				t.Errorf("error %v, want one that names %s and the value", err, field)
			}
		})
	}
}
