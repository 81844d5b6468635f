package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AzureKind is one of the things that a cluster has in Azure, and the step that makes or removes it.
type AzureKind string

// The things that a cluster has in Azure, in the order in which they are made.
const (
	// AzureResourceGroup is the managed resource group in the customer's subscription.
	AzureResourceGroup AzureKind = "resource-group"
	// AzureDNSZone is the zone of what runs in the cluster, in the managed resource group.
	AzureDNSZone AzureKind = "dns-zone"
	// AzureDNSDelegation is the record set in the region's zone that delegates the cluster's.
	AzureDNSDelegation AzureKind = "dns-delegation"
	// AzureDocuments are the OpenID documents of the issuer of the cluster's service account tokens.
	AzureDocuments AzureKind = "oidc-documents"
	// AzureSecurityGroup is the association of the customer's subnet with the network security group.
	AzureSecurityGroup AzureKind = "network-security-group"
	// AzureRoles are what the identities of the operators may do in the customer's network: checked, never made.
	AzureRoles AzureKind = "operator-roles"
	// AzureFederation are the federated credentials by which service accounts are identities.
	AzureFederation AzureKind = "federated-credentials"
	// AzureCertificate is the serving certificate of the API server in Key Vault.
	AzureCertificate AzureKind = "serving-certificate"
	// AzureAPIRecord is the record set of the API's host name in the region's zone.
	AzureAPIRecord AzureKind = "api-record"
	// AzureServiceRecords are the record sets, in the region's zone, of the host names under which the HostedCluster publishes
	// its services to nodes and customers.
	AzureServiceRecords AzureKind = "service-records"
)

// AzureKinds are all of them, in the order in which they are made; they are removed in the opposite order.
func AzureKinds() []AzureKind {
	return []AzureKind{AzureResourceGroup, AzureDNSZone, AzureDNSDelegation, AzureDocuments, AzureSecurityGroup, AzureRoles, AzureFederation,
		AzureCertificate, AzureAPIRecord, AzureServiceRecords}
}

// azureNeeds says what must be there before, and is removed only after. Nothing else waits for anything.
var azureNeeds = map[AzureKind]AzureKind{AzureDNSZone: AzureResourceGroup, AzureDNSDelegation: AzureDNSZone}

// Retries of a step that failed: the first comes soon, none later than azureLastRetry.
const (
	azureFirstRetry = 500 * time.Millisecond
	azureLastRetry  = 30 * time.Second
	// azurePatience is how long a step waits at first that Azure gave no time to, and azureLongPatience in the end: it doubles
	// with every azureLooks looks.
	azurePatience     = 200 * time.Millisecond
	azureLongPatience = 15 * time.Second
	azureLooks        = 4
	// azureLongest bounds what Azure may ask to wait.
	azureLongest = 10 * time.Minute
	// azureLastRenewal is the longest time between two tries to make anew what has not ended: there are weeks for it.
	azureLastRenewal = time.Hour
	// azureLastForced is the longest time between two tries of what nobody waits for.
	azureLastForced = 10 * time.Minute
)

// Azure is what a cluster has in Azure and the job that makes or removes it: it is due while a step is.
type Azure struct {
	Steps []*AzureStep `json:"steps"`
	// Deleting says that the steps are to be undone. A step that is undone is no longer among them.
	Deleting bool `json:"deleting,omitempty"`
}

// AzureStep is one of the things that a cluster has in Azure, and how far it is.
type AzureStep struct {
	Kind AzureKind `json:"kind"`
	// Done says that it is there, for Input: what it was made of that may change.
	Done  bool   `json:"done,omitempty"`
	Input string `json:"input,omitempty"`
	// Due says that there is something to do which waits for nothing but RetryTime.
	Due bool `json:"due,omitempty"`
	// Facts are what was decided or learnt when it was made, and is needed to remove it or by another step.
	Facts map[string]string `json:"facts,omitempty"`
	// Awaited is what it waits for, when it is not us; Error why it failed when it was last tried.
	Awaited  string `json:"awaited,omitempty"`
	Error    string `json:"error,omitempty"`
	Attempts int32  `json:"attempts,omitempty"`
	// Polls counts the times that it was looked at since it waits for Azure.
	Polls int32 `json:"looks,omitempty"`
	// RetryTime is when it is next due; zero is at once. Since is when it was begun, done, or begun to be undone.
	RetryTime time.Time `json:"retryTime,omitzero"`
	Since     time.Time `json:"since"`
	// Expires is when what was made ends, and Renew when it is to be made anew before; zero for what does not end. A step that
	// makes something anew is done meanwhile: what there was serves on.
	Expires time.Time `json:"ends,omitzero"`
	Renew   time.Time `json:"renew,omitzero"`
	// Forced says who had the cluster not wait for it any more. It goes on to be tried.
	Forced *AzureForce `json:"forced,omitempty"`
}

// AzureForce is that a cluster does not wait for a step.
type AzureForce struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Overdue is when a renewal has failed for half of the time that there is for it, which is somebody's concern; zero when
// there is nothing to renew.
func (s *AzureStep) Overdue() time.Time {
	if !s.Done || s.Renew.IsZero() {
		return time.Time{}
	}
	return s.Renew.Add(s.Expires.Sub(s.Renew) / 2)
}

// AzureOutcome is what came of trying a step.
type AzureOutcome struct {
	Kind AzureKind
	// Undo says that it was to be removed.
	Undo bool
	// Done says that it is there, or gone.
	Done  bool
	Input string
	// Facts are added to the step's, also when it is not done: a decision is stored before it is acted upon.
	Facts map[string]string
	// Awaited says what a step that is under way waits for. RetryAfter is what Azure asks to wait; 0 when it does not.
	Awaited    string
	RetryAfter time.Duration
	Error      string
	// Expires and Renew are those of the step, when it is done.
	Expires, Renew time.Time
}

// AzureAssociation is the fact of AzureSecurityGroup that says whose the association is: one that was there before is the
// customer's and stays.
const (
	AzureAssociation         = "association"
	AzureAssociatedByService = "service"
)

// SubnetAssociated says that the association of the customer's subnet is the service's.
func (a *Azure) SubnetAssociated() bool {
	s := a.Step(AzureSecurityGroup)
	return s != nil && s.Facts[AzureAssociation] == AzureAssociatedByService
}

// RecoveredAzure is the job of a cluster that was lost. Its steps find what there is in Azure, all but whose an association is.
func RecoveredAzure(subnetAssociated bool) *Azure {
	a := &Azure{}
	if subnetAssociated {
		a.Steps = []*AzureStep{{Kind: AzureSecurityGroup, Facts: map[string]string{AzureAssociation: AzureAssociatedByService}}}
	}
	return a
}

// Step finds a step; nil when there is none.
func (a *Azure) Step(kind AzureKind) *AzureStep {
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Steps, func(s *AzureStep) bool { return s.Kind == kind })
	if i < 0 {
		return nil
	}
	return a.Steps[i]
}

// Next is the step that is to be tried at a time, of those that are not in tried; nil when there is none.
func (a *Azure) Next(now time.Time, tried map[AzureKind]bool) *AzureStep {
	if a == nil {
		return nil
	}
	for _, s := range a.Steps {
		if s.Due && !s.RetryTime.After(now) && !tried[s.Kind] {
			return s
		}
	}
	return nil
}

// DueTime is when the next step is due; false when none is.
func (a *Azure) DueTime() (time.Time, bool) {
	var at time.Time
	found := false
	for _, s := range a.Steps {
		if s.Due && (!found || s.RetryTime.Before(at)) {
			at, found = s.RetryTime, true
		}
	}
	return at, found
}

// Expiry are when the first thing that was made ends, and from when on the renewal of one is overdue; zero when nothing
// ends.
func (a *Azure) Expiry() (ends, overdue time.Time) {
	first := func(at *time.Time, other time.Time) {
		if !other.IsZero() && (at.IsZero() || other.Before(*at)) {
			*at = other
		}
	}
	for _, s := range a.Steps {
		if s.Done {
			first(&ends, s.Expires)
			first(&overdue, s.Overdue())
		}
	}
	return ends, overdue
}

// Clone is a deep copy.
func (a *Azure) Clone() *Azure {
	if a == nil {
		return nil
	}
	c := &Azure{Deleting: a.Deleting}
	for _, s := range a.Steps {
		step := *s
		step.Facts = maps.Clone(s.Facts)
		c.Steps = append(c.Steps, &step)
	}
	return c
}

// Record takes what came of trying a step. What was begun before the direction changed leaves only its facts.
func (a *Azure) Record(now time.Time, o AzureOutcome) {
	s := a.Step(o.Kind)
	if s == nil {
		return
	}
	if len(o.Facts) > 0 {
		if s.Facts == nil {
			s.Facts = map[string]string{}
		}
		maps.Copy(s.Facts, o.Facts)
	}
	if o.Undo != a.Deleting {
		return
	}
	looks := s.Polls
	s.Awaited, s.Error, s.Polls = o.Awaited, o.Error, 0
	wait := min(o.RetryAfter, azureLongest)
	switch {
	case o.Done && o.Undo:
		a.Steps = slices.DeleteFunc(a.Steps, func(other *AzureStep) bool { return other == s })
		return
	case o.Done:
		if !s.Done {
			s.Since = now
		}
		s.Done, s.Input, s.Attempts, s.RetryTime, s.Expires, s.Renew, s.Forced = true, o.Input, 0, o.Renew, o.Expires, o.Renew, nil
		return
	case o.Error != "":
		s.Attempts++
		last := azureLastRetry
		if s.Done {
			// What serves on until it ends is tried more often as that comes near.
			last = max(azureLastRetry, min(azureLastRenewal, s.Expires.Sub(now)/100))
		}
		if s.Forced != nil {
			last = azureLastForced
		}
		wait = max(wait, min(azureFirstRetry<<min(s.Attempts-1, 16), last))
	case o.Awaited != "":
		s.Attempts, s.Polls = 0, looks+1
		wait = max(wait, min(azurePatience<<min(looks/azureLooks, 16), azureLongPatience))
	}
	s.RetryTime = time.Time{}
	if wait > 0 {
		s.RetryTime = now.Add(wait)
	}
}

// planAzure says which steps are wanted and due. What a cluster has in Azure is made beside its control plane, not before
// it: the HostedCluster waits for nothing in Azure, and what no management cluster takes leaves nothing there. It is removed
// when the control plane is gone, which needs it until then.
func (r Region) planAzure(now time.Time, t *ClusterAggregate) {
	c := t.Cluster
	switch {
	case c == nil || c.Gone() || c.Shard == "":
		return
	case !c.Deleting():
		if t.Azure == nil && (len(r.AzureKinds) == 0 || !t.hostedClusterIsThere()) {
			return
		}
		if t.Azure == nil {
			t.Azure = &Azure{}
		}
		for _, kind := range r.AzureKinds {
			if t.Azure.Step(kind) == nil {
				t.Azure.Steps = append(t.Azure.Steps, &AzureStep{Kind: kind, Since: now})
			}
		}
	case t.Azure != nil && !t.Azure.Deleting && !t.controlPlaneRemains():
		t.Azure.Deleting = true
		slices.Reverse(t.Azure.Steps)
		for _, s := range t.Azure.Steps {
			s.Done, s.Attempts, s.RetryTime, s.Awaited, s.Error, s.Since = false, 0, time.Time{}, "", "", now
			s.Polls, s.Expires, s.Renew, s.Forced = 0, time.Time{}, time.Time{}, nil
		}
	}
	r.dueAzure(now, t)
}

// dueAzure says of each step whether it is due, and what it waits for when it is not.
func (r Region) dueAzure(now time.Time, t *ClusterAggregate) {
	a := t.Azure
	if a == nil {
		return
	}
	for _, s := range a.Steps {
		if a.Deleting {
			s.Due = !slices.ContainsFunc(a.Steps, func(other *AzureStep) bool { return azureNeeds[other.Kind] == s.Kind })
			continue
		}
		input, awaited := r.AzureInput(t, s.Kind)
		if s.Done && awaited == "" && s.Input != input {
			s.Done, s.Since = false, now
		}
		needed := a.Step(azureNeeds[s.Kind])
		s.Due = (!s.Done || s.ends()) && awaited == "" && (needed == nil || needed.Done) && !t.Cluster.Deleting()
		if awaited != "" && !s.Done {
			s.Awaited = awaited
		}
	}
}

// ends says that what a step makes ends some day: when, it learns by being tried.
func (s *AzureStep) ends() bool { return s.Kind == AzureCertificate }

// RefreshAzure is planAzure's last part, for who tries one step after the other.
func (r Region) RefreshAzure(now time.Time, t *ClusterAggregate) { r.dueAzure(now, t) }

// AzureInput is what a step is made of that may change or is not known from the start; awaited says what is missing.
func (r Region) AzureInput(t *ClusterAggregate, kind AzureKind) (input, awaited string) {
	switch kind {
	case AzureDocuments:
		if len(t.Cluster.SigningKey) == 0 {
			return "", "the cluster's signing key"
		}
		return r.Issuer(t.Cluster), ""
	case AzureAPIRecord, AzureServiceRecords:
		if w := t.Work(HostedCluster, ""); w != nil && w.Observed.EndpointHost != "" {
			return w.Observed.EndpointHost, ""
		}
		return "", "the HostedCluster's endpoint"
	}
	return "", ""
}

// controlPlaneRemains says that a management cluster may still run something that needs the cluster's Azure resources.
func (t *ClusterAggregate) controlPlaneRemains() bool {
	return slices.ContainsFunc(t.Works, func(w *Work) bool { return w.Kind != Namespaces })
}

// hostedClusterIsThere says that the management cluster has the HostedCluster.
func (t *ClusterAggregate) hostedClusterIsThere() bool {
	w := t.Work(HostedCluster, "")
	return w != nil && w.Observed.Applied.Status == "True"
}

// azureDone says that everything is there that a cluster needs in Azure.
func (r Region) azureDone(t *ClusterAggregate) bool {
	if t.Azure == nil {
		return len(r.AzureKinds) == 0
	}
	return !slices.ContainsFunc(t.Azure.Steps, (*AzureStep).awaited)
}

// awaited says that the cluster waits for the step.
func (s *AzureStep) awaited() bool { return !s.Done && s.Forced == nil }

// azureLayers are the progress in Azure: each step in trouble, else the first that is not done.
func (t *ClusterAggregate) azureLayers() []layer {
	if t.Azure == nil {
		return nil
	}
	verb, open := "Making", []*AzureStep{}
	if t.Azure.Deleting {
		verb = "Removing"
	}
	var layers []layer
	there, forced := len(t.Azure.Steps), ""
	for _, s := range t.Azure.Steps {
		if s.Forced != nil {
			there--
			forced += fmt.Sprintf(" Nobody waits for %s any more (%s: %s)", describeAzure[s.Kind], s.Forced.By, s.Forced.Reason)
			if s.Error != "" {
				forced += ", which failed last with: " + strings.TrimSuffix(s.Error, ".")
			}
			forced += "."
			continue
		}
		if s.Done {
			if s.Error != "" {
				layers = append(layers, layer{LayerAzure, AzureRenewalFailing, fmt.Sprintf("Attempt %d to make %s anew, which ends at %s, failed: %s",
					s.Attempts, describeAzure[s.Kind], s.Expires.UTC().Format(time.RFC3339), s.Error)})
			}
			continue
		}
		open = append(open, s)
		if s.Error != "" {
			layers = append(layers, layer{LayerAzure, "Retrying" + camelCase(string(s.Kind)), fmt.Sprintf("Attempt %d failed: %s", s.Attempts, s.Error)})
		}
	}
	switch {
	case len(open) == 0 && t.Azure.Deleting:
		return []layer{{LayerAzure, "Deleted", "Nothing is left in Azure."}}
	case len(open) == 0 && len(layers) == 0:
		message := fmt.Sprintf("All %d Azure resources of the cluster are there.", there)
		if forced != "" {
			message = fmt.Sprintf("%d of %d Azure resources of the cluster are there.%s", there, len(t.Azure.Steps), forced)
		}
		return []layer{{LayerAzure, "Ready", message}}
	case len(layers) == 0:
		first := open[0]
		if i := slices.IndexFunc(open, func(s *AzureStep) bool { return s.Due }); i >= 0 {
			first = open[i]
		}
		message := fmt.Sprintf("%s %s, %d of %d are left.", verb, describeAzure[first.Kind], len(open), len(t.Azure.Steps))
		if first.Awaited != "" {
			message = fmt.Sprintf("%s %s: waiting for %s.", verb, describeAzure[first.Kind], first.Awaited)
		}
		layers = append(layers, layer{LayerAzure, verb + camelCase(string(first.Kind)), message})
	}
	return layers
}

// AzureRenewalFailing is the state of the progress in Azure when everything is there and something is not made anew.
const AzureRenewalFailing = "RenewalFailing"

// Facts of the certificate's step: the version that the vault has, and the one that it was renewed to, which those who have
// the version before are to fetch.
const (
	AzureCertificateVersion = "version"
	AzureCertificateRenewed = "renewedVersion"
)

// RenewedCertificate is the version of the API server's certificate that was made in place of another; empty while the
// first one serves.
func (t *ClusterAggregate) RenewedCertificate() string {
	if s := t.Azure.Step(AzureCertificate); s != nil {
		return s.Facts[AzureCertificateRenewed]
	}
	return ""
}

// describeAzure names the steps for sentences.
var describeAzure = map[AzureKind]string{
	AzureResourceGroup: "the managed resource group",
	AzureDNSZone:       "the cluster's DNS zone",
	AzureDNSDelegation: "the delegation of the cluster's DNS zone",
	AzureDocuments:     "the OpenID documents of the issuer",
	AzureSecurityGroup: "the association of the subnet with its network security group",
	AzureRoles:         "the check of the operators' roles",
	AzureFederation:    "the federated credentials of the data plane's identities",
	AzureCertificate:   "the API server's certificate",
	AzureAPIRecord:     "the DNS record of the API",

	AzureServiceRecords: "the DNS records of the control plane's services",
}
