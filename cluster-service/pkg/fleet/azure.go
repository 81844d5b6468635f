package fleet

import (
	"maps"
	"slices"
	"time"
)

// AzureKind is the kind of an Azure resource of a cluster, and of the step that creates or removes it.
type AzureKind string

// The kinds in the order in which they are created.
const (
	// AzureIdentities are the customer's identities of the cluster. Their client IDs are read, because the HostedCluster
	// needs them. Nothing is created.
	AzureIdentities AzureKind = "identities"
	// AzureResourceGroup is the managed resource group in the customer's subscription.
	AzureResourceGroup AzureKind = "resource-group"
	// AzureDNSZone is the zone of the cluster's applications, in the managed resource group.
	AzureDNSZone AzureKind = "dns-zone"
	// AzureDNSDelegation is the record set in the region's zone that delegates the cluster's zone.
	AzureDNSDelegation AzureKind = "dns-delegation"
	// AzureDocuments are the OpenID documents of the cluster's token issuer.
	AzureDocuments AzureKind = "oidc-documents"
	// AzureSecurityGroup is the association of the customer's subnet with the network security group.
	AzureSecurityGroup AzureKind = "network-security-group"
	// AzureRoles are the role assignments of the operators' identities in the customer's network. They are checked and
	// never created.
	AzureRoles AzureKind = "operator-roles"
	// AzureRequirements are the sizes and the quota of cores that the node pools need in the customer's subscription. They are checked and never
	// created. The step is done with its first answer; nothing waits for what it finds.
	AzureRequirements AzureKind = "requirements"
	// AzureFederation are the federated credentials that let service accounts use the operators' identities.
	AzureFederation AzureKind = "federated-credentials"
	// AzureCredentials are the credentials of the control plane's identities, in the vault from which its operators read them.
	AzureCredentials AzureKind = "identity-credentials"
	// AzureCertificate is the serving certificate of the API server in Key Vault.
	AzureCertificate AzureKind = "serving-certificate"
	// AzureAPIRecord is the record set of the API's host name in the region's zone.
	AzureAPIRecord AzureKind = "api-record"
	// AzureServiceRecords are the record sets, in the region's zone, of the host names under which the HostedCluster
	// publishes its services.
	AzureServiceRecords AzureKind = "service-records"
)

// AzureKinds returns all kinds in the order in which they are created. They are removed in the reverse order.
func AzureKinds() []AzureKind {
	return []AzureKind{AzureIdentities, AzureResourceGroup, AzureDNSZone, AzureDNSDelegation, AzureDocuments, AzureSecurityGroup, AzureRoles,
		AzureRequirements, AzureFederation, AzureCredentials, AzureCertificate, AzureAPIRecord, AzureServiceRecords}
}

// azureNeeds maps a kind to the kind that must exist before it and is removed after it. All other kinds are independent.
var azureNeeds = map[AzureKind]AzureKind{AzureDNSZone: AzureResourceGroup, AzureDNSDelegation: AzureDNSZone}

// A failed step is retried after azureFirstRetry, and after at most azureLastRetry.
const (
	azureFirstRetry = 500 * time.Millisecond
	azureLastRetry  = 30 * time.Second
	// azurePatience is the first polling interval of an operation for which Azure names none, and azureLongPatience the
	// longest. It doubles after every azureLooks polls.
	azurePatience     = 50 * time.Millisecond
	azureLongPatience = 15 * time.Second
	azureLooks        = 2
	// azureLongest bounds the interval that Azure may request.
	azureLongest = 10 * time.Minute
	// azureLastRenewal is the longest interval between attempts to renew what has not expired; a renewal has weeks.
	azureLastRenewal = time.Hour
	// azureLastForced is the longest interval between attempts of a forced step.
	azureLastForced = 10 * time.Minute
	// azureIdentitiesInterval is the time after which the identities of a cluster are read again, and azureLastIdentities
	// the longest interval between failing attempts. The control plane keeps the client IDs meanwhile.
	azureIdentitiesInterval = 6 * time.Hour
	azureLastIdentities     = 10 * time.Minute
	// azureCredentialsInterval is the longest time between checks that the vault has the credentials of a cluster's identities.
	azureCredentialsInterval = 12 * time.Hour
)

// Azure is the state of a cluster's Azure resources, and the job that creates or removes them. It is due while one of its
// steps is.
type Azure struct {
	Steps []*AzureStep `json:"steps"`
	// Deleting reports that the steps are undone. An undone step is removed from Steps.
	Deleting bool `json:"deleting,omitempty"`
}

// AzureStep is the state of one Azure resource of a cluster.
type AzureStep struct {
	Kind AzureKind `json:"kind"`
	// Done reports that the resource exists for Input, the part of its inputs that may change.
	Done  bool   `json:"done,omitempty"`
	Input string `json:"input,omitempty"`
	// Due reports that the step has something to do and waits only for RetryTime.
	Due bool `json:"due,omitempty"`
	// Facts are decisions and observations from the creation that the removal or another step needs.
	Facts map[string]string `json:"facts,omitempty"`
	// Awaited is what the step waits for if it is not retried; Error is its last failure.
	Awaited  string `json:"awaited,omitempty"`
	Error    string `json:"error,omitempty"`
	Attempts int32  `json:"attempts,omitempty"`
	// Polls is the number of polls since the step waits for Azure.
	Polls int32 `json:"looks,omitempty"`
	// RetryTime is when the step is due; zero means at once. Since is when it was started, done, or started to be undone.
	RetryTime time.Time `json:"retryTime,omitzero"`
	Since     time.Time `json:"since"`
	// Expires is when the resource expires, and Renew when its renewal is due; zero if it does not expire. During a renewal
	// the step stays done, because the existing resource remains valid.
	Expires time.Time `json:"ends,omitzero"`
	Renew   time.Time `json:"renew,omitzero"`
	// Forced records who forced the step. The step is still retried.
	Forced *AzureForce `json:"forced,omitempty"`
	// Requests counts the requests to attempt the step again although it is done; see ReadIdentitiesAgain.
	Requests int64 `json:"requests,omitempty"`
}

// AzureForce records that an SRE let the cluster proceed without a step.
type AzureForce struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Overdue returns the time at which a renewal has failed for half of the available time and needs attention; zero if
// nothing is to be renewed.
func (s *AzureStep) Overdue() time.Time {
	if !s.Done || s.Renew.IsZero() {
		return time.Time{}
	}
	return s.Renew.Add(s.Expires.Sub(s.Renew) / 2)
}

// AzureOutcome is the result of one attempt of a step.
type AzureOutcome struct {
	Kind AzureKind
	// Undo reports that the attempt removed the resource.
	Undo bool
	// Done reports that the resource exists, or with Undo that it is gone.
	Done  bool
	Input string
	// Facts are added to those of the step, also if it is not done. A decision is stored before it takes effect.
	Facts map[string]string
	// Awaited is what an active operation waits for. RetryAfter is the interval that Azure requests; 0 if it requests none. For AzureRequirements
	// that are done it is the time to the next check; 0 if none is needed.
	Awaited    string
	RetryAfter time.Duration
	Error      string
	// Expires and Renew are those of a step that is done.
	Expires, Renew time.Time
	// Requests is that of the step when the attempt started.
	Requests int64
}

// AzureAssociation is the fact of AzureSecurityGroup about the owner of the association. An association that existed before
// belongs to the customer and is kept.
const (
	AzureAssociation         = "association"
	AzureAssociatedByService = "service"
)

// SubnetAssociated reports whether the service created the association of the customer's subnet.
func (a *Azure) SubnetAssociated() bool {
	s := a.Step(AzureSecurityGroup)
	return s != nil && s.Facts[AzureAssociation] == AzureAssociatedByService
}

// RecoveredAzure returns the state for a cluster that this database lost. Its steps find what exists in Azure, except for
// the owner of the subnet association, which is given.
func RecoveredAzure(subnetAssociated bool) *Azure {
	a := &Azure{}
	if subnetAssociated {
		a.Steps = []*AzureStep{{Kind: AzureSecurityGroup, Facts: map[string]string{AzureAssociation: AzureAssociatedByService}}}
	}
	return a
}

// Step returns the step of a kind, or nil.
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

// Next returns the step to try now that is not in tried, or nil.
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

// DueTime returns when the next step is due; false if none is.
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

// Expiry returns when the first resource expires, and when the first renewal is overdue; zero if nothing expires.
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

// Clone returns a deep copy.
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

// Record applies the result of an attempt. An attempt from before the direction changed only adds its facts.
func (a *Azure) Record(now time.Time, o AzureOutcome) {
	s := a.Step(o.Kind)
	if s == nil {
		return
	}
	if len(o.Facts) > 0 {
		if s.Facts == nil {
			s.Facts = map[string]string{}
		}
		replaced := replacesIdentity(s.Facts, o.Facts)
		maps.Copy(s.Facts, o.Facts)
		if replaced {
			s.Facts[azureIdentitiesReplaced] = a.IdentityIDs()
		}
	}
	if o.Undo != a.Deleting {
		return
	}
	// An attempt that started before the last request does not answer it.
	requested := o.Requests != s.Requests
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
		switch {
		case s.Kind == AzureIdentities && !requested:
			s.RetryTime = now.Add(azureIdentitiesInterval)
		case s.Kind == AzureRequirements && o.RetryAfter > 0:
			s.RetryTime = now.Add(o.RetryAfter)
		case s.Kind == AzureCredentials:
			wait := azureCredentialsInterval
			if !o.Renew.IsZero() {
				// A credential that is due for renewal as soon as it is issued must not cause requests without a pause.
				wait = min(wait, max(o.Renew.Sub(now), azureLastRetry))
			}
			s.RetryTime = now.Add(wait)
		}
		return
	case o.Error != "":
		s.Attempts++
		last := azureLastRetry
		switch {
		case s.Done && s.Kind == AzureIdentities:
			last = azureLastIdentities
		case s.Done:
			// The closer the expiry of a valid resource, the shorter the interval.
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
	if wait > 0 && !requested {
		s.RetryTime = now.Add(wait)
	}
}

// planAzure plans the steps and decides which of them are due. The HostedCluster waits only for AzureIdentities, which
// creates nothing. All other resources are created in parallel with the control plane, so that a cluster that no management
// cluster accepts leaves nothing behind. They are removed after the control plane, which needs them until then.
func (r Region) planAzure(now time.Time, t *ClusterAggregate) {
	c := t.Cluster
	switch {
	case c == nil || c.Gone() || c.Shard == "":
		return
	case !c.Deleting():
		if t.Azure == nil && !r.ReadsIdentities() && (len(r.AzureKinds) == 0 || !t.hostedClusterIsThere()) {
			return
		}
		// The state of a recovered cluster exists without steps, and all of them are planned at once.
		all := t.hostedClusterIsThere() || t.Azure != nil && !t.Azure.onlyIdentities()
		if t.Azure == nil {
			t.Azure = &Azure{}
		}
		for _, kind := range r.AzureKinds {
			if t.Azure.Step(kind) == nil && (all || kind == AzureIdentities) {
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

// dueAzure decides which steps are due and what the others wait for.
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
		switch {
		case !s.Done || awaited != "" || s.Input == input:
		case s.Kind != AzureRequirements:
			s.Done, s.Since, s.RetryTime = false, now, time.Time{}
		case s.RetryTime.IsZero() || s.RetryTime.After(now):
			s.RetryTime = now // the step stays done, because nothing waits for the next check
		}
		needed := a.Step(azureNeeds[s.Kind])
		s.Due = (!s.Done || s.repeats()) && awaited == "" && (needed == nil || needed.Done) && !t.Cluster.Deleting()
		if awaited != "" && !s.Done {
			s.Awaited = awaited
		}
	}
}

// repeats reports whether a step is attempted again after it is done: a certificate and credentials are renewed, and identities are read
// again. The time is known after the first attempt. Requirements are checked again only at a time that is set.
func (s *AzureStep) repeats() bool {
	return s.Kind == AzureRequirements && !s.RetryTime.IsZero() || s.Kind == AzureCertificate || s.Kind == AzureCredentials || s.Kind == AzureIdentities
}

// RefreshAzure decides again which steps are due, between attempts of several steps.
func (r Region) RefreshAzure(now time.Time, t *ClusterAggregate) { r.dueAzure(now, t) }

// AzureInput returns the part of a step's inputs that may change or is not known from the start. awaited is what is
// missing.
func (r Region) AzureInput(t *ClusterAggregate, kind AzureKind) (input, awaited string) {
	switch kind {
	case AzureIdentities:
		return t.Cluster.identitiesInput(), ""
	case AzureRoles:
		if s := t.Azure.Step(AzureIdentities); s == nil || !s.Done {
			return "", "the principal IDs of the identities"
		}
		return t.Azure.IdentitiesReplaced(), ""
	case AzureRequirements:
		return t.requirementsInput(), ""
	case AzureFederation:
		return t.Azure.IdentitiesReplaced(), ""
	case AzureCredentials:
		if s := t.Azure.Step(AzureIdentities); s == nil || !s.Done {
			return "", "the IDs of the identities"
		}
		return t.Cluster.identitiesInput() + t.Azure.IdentitiesReplaced(), ""
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

// controlPlaneRemains reports whether a management cluster may still run something that needs the cluster's Azure
// resources.
func (t *ClusterAggregate) controlPlaneRemains() bool {
	return slices.ContainsFunc(t.Works, func(w *Work) bool { return w.Kind != Namespaces })
}

// hostedClusterIsThere reports whether the management cluster has the HostedCluster.
func (t *ClusterAggregate) hostedClusterIsThere() bool {
	w := t.Work(HostedCluster, "")
	return w != nil && w.Observed.Applied.Status == "True"
}

// azureReady reports whether all Azure resources exist that the cluster waits for.
func (r Region) azureReady(t *ClusterAggregate) bool {
	if slices.ContainsFunc(r.AzureKinds, func(kind AzureKind) bool { return t.Azure.Step(kind) == nil }) {
		return false
	}
	return t.Azure == nil || !slices.ContainsFunc(t.Azure.Steps, (*AzureStep).awaited)
}

// awaited reports whether the cluster waits for the step.
func (s *AzureStep) awaited() bool { return !s.Done && s.Forced == nil }

// Facts of the certificate's step: the current version in the vault, and the version of the last renewal, which users of an
// earlier version must fetch.
const (
	AzureCertificateVersion = "version"
	AzureCertificateRenewed = "renewedVersion"
)

// RenewedCertificate returns the version of the API server's certificate after a renewal; empty for the first certificate.
func (t *ClusterAggregate) RenewedCertificate() string {
	if s := t.Azure.Step(AzureCertificate); s != nil {
		return s.Facts[AzureCertificateRenewed]
	}
	return ""
}
