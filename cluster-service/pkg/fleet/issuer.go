package fleet

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// issuerTarget returns the target, host:port, of connections to an issuer; empty if the URL has none.
func issuerTarget(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}

// issuerFailure is why a control plane cannot read the keys of an issuer. The message is for the customer: it does not contain the
// addresses to which a name resolves.
type issuerFailure struct{ reason, message string }

// issuerProblemOf returns why the egress proxy does not connect the control plane to the issuer; nil if no failure is reported.
func issuerProblemOf(a *ExternalAuth, seen *feedback.Observed) *issuerFailure {
	target := issuerTarget(a.Spec.GetIssuer().GetUrl())
	i := slices.IndexFunc(seen.EgressFailures, func(f hostedreport.EgressFailure) bool { return f.Target == target })
	if i < 0 {
		return nil
	}
	outcome, reason := seen.EgressFailures[i].Outcome, clusterstatus.StateIssuerUnreachable
	if outcome.Refused() {
		reason = clusterstatus.StateIssuerRefused
	}
	return &issuerFailure{reason, "The control plane cannot read the keys of the issuer at " + target + ": " + issuerCause(outcome) + "."}
}

func issuerCause(outcome hostedreport.EgressOutcome) string {
	switch outcome {
	case hostedreport.EgressAddress:
		return "control planes connect only to public addresses, and the host has none"
	case hostedreport.EgressPort:
		return "control planes connect to issuers only at port 443"
	case hostedreport.EgressUnresolved:
		return "the name of the host does not resolve"
	case hostedreport.EgressUnreachable:
		return "the host does not accept connections"
	}
	return "it is neither a DNS name nor an address"
}
