package fleet

import (
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clustercondition"
)

// customerConditions returns the conditions about what the customer owns. Each but LogsDelivered is reported only while it is False.
func (t *ClusterAggregate) customerConditions(now time.Time, before []*csv1.Condition, hostedCluster *Work) []*csv1.Condition {
	var conditions []*csv1.Condition
	add := func(generation int64, c condition) {
		conditions = append(conditions, setConditions(before, now, generation, c)...)
	}
	generation := t.Cluster.Generation
	if missing := t.Azure.Step(AzureIdentities).missingIdentities(); missing != "" {
		add(generation, condition{clustercondition.IdentitiesRead, "False", clustercondition.IdentityNotFound, identitiesMissingSentence + missing + "."})
	}
	if full := t.Azure.Step(AzureFederation).fullIdentities(); full != "" {
		add(generation, condition{clustercondition.IdentitiesFederated, "False", clustercondition.FederatedCredentialLimit, identitiesFullSentence + full + "."})
	}
	if keyUnusable(t.Cluster.Spec, &hostedCluster.Observed) {
		add(hostedCluster.Generation, condition{clustercondition.EncryptionKeyUsable, "False", clustercondition.EncryptionKeyInvalid, "HyperShift cannot encrypt with the customer's key."})
	}
	if report := hostedCluster.Observed.Logs; report != nil {
		add(hostedCluster.Generation, logsDelivered(report))
	}
	return conditions
}
