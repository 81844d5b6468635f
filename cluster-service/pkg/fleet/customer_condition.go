package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// customerConditions returns the conditions about what the customer owns. Each but LogsDelivered is reported only while it is False.
func (t *ClusterAggregate) customerConditions(now time.Time, before []*csv1.Condition, hostedCluster *Work) []*csv1.Condition {
	var conditions []*csv1.Condition
	add := func(generation int64, c condition) {
		conditions = append(conditions, setConditions(before, now, generation, c)...)
	}
	generation := t.Cluster.Generation
	if missing := t.Azure.Step(AzureIdentities).missingIdentities(); missing != "" {
		add(generation, condition{clusterstatus.IdentitiesRead, "False", clusterstatus.IdentityNotFound, identitiesMissingSentence + missing + "."})
	}
	if full := t.Azure.Step(AzureFederation).fullIdentities(); full != "" {
		add(generation, condition{clusterstatus.IdentitiesFederated, "False", clusterstatus.FederatedCredentialLimit, identitiesFullSentence + full + "."})
	}
	if refused := t.Azure.Step(AzureCredentials).refusedIdentities(); refused != "" {
		add(generation, condition{clusterstatus.CredentialsIssued, "False", clusterstatus.CredentialRefused, identitiesRefusedSentence + refused + "."})
	}
	if keyUnusable(t.Cluster.Spec, &hostedCluster.Observed) {
		add(hostedCluster.Generation, condition{clusterstatus.EncryptionKeyUsable, "False", clusterstatus.EncryptionKeyInvalid, "HyperShift cannot encrypt with the customer's key."})
	}
	if report := hostedCluster.Observed.Logs; report != nil {
		add(hostedCluster.Generation, logsDelivered(report))
	}
	add(generation, condition{name: clusterstatus.InternalRangesAllowed}) // keeps that of reportRanges
	return conditions
}

// reportRanges sets or removes the condition InternalRangesAllowed.
func (t *ClusterAggregate) reportRanges(now time.Time, renderer Renderer) {
	s := t.Cluster.Status
	others := slices.DeleteFunc(slices.Clone(s.Conditions), func(c *csv1.Condition) bool { return c.GetType() == clusterstatus.InternalRangesAllowed })
	if text := omittedText(renderer.OmittedRanges(t.Cluster)); text != "" {
		others = append(others, setConditions(s.Conditions, now, t.Cluster.Generation, condition{clusterstatus.InternalRangesAllowed, "False", clusterstatus.TooManyRanges, text})...)
	}
	s.Conditions = others
}

// maxOmitted is the maximum number of ranges in a message.
const maxOmitted = 10

// omittedText returns the message about ranges of the region that a HostedCluster leaves out; empty if there are none.
func omittedText(omitted []string) string {
	if len(omitted) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of internalAPICIDRs cannot reach the API, because HyperShift does not allow as many ranges together with properties.api.authorizedCidrs: %s",
		len(omitted), strings.Join(omitted[:min(len(omitted), maxOmitted)], ", "))
	if len(omitted) > maxOmitted {
		text += ", …"
	}
	return text + "."
}

// condition returns a condition of the cluster; nil if it has none of the type.
func (t *ClusterAggregate) condition(name string) *csv1.Condition {
	i := slices.IndexFunc(t.Cluster.Status.GetConditions(), func(c *csv1.Condition) bool { return c.GetType() == name })
	if i < 0 {
		return nil
	}
	return t.Cluster.Status.GetConditions()[i]
}
