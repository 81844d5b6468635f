package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// addOperations adds the operations of the customer in ARM.
func (c *collector) addOperations(arm *adminv1.ARMLayer) {
	if arm == nil {
		return
	}
	for _, o := range arm.Operations {
		summary := fmt.Sprintf("The customer's request %s is in progress.", o.Request)
		if o.EndTime != nil {
			summary = fmt.Sprintf("The customer's request %s ended: %s after %s.%s", o.Request, o.Status, lasted(o.StartTime, *o.EndTime), failure(o.Error))
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: o.StartTime, EndTime: o.EndTime, Layer: adminv1.LayerARM, Kind: adminv1.TimelineOperation, Subject: c.subject(o.ResourceID), Summary: summary, ID: o.OperationID,
		})
	}
}

// addChanges adds the changes that Cluster Service recorded.
func (c *collector) addChanges(changes []*clusterservicev1.ClusterChange) {
	for _, change := range slices.Backward(changes) { // the oldest first
		e := adminv1.TimelineEntry{Time: change.GetTime().AsTime(), Layer: adminv1.LayerClusterService, Subject: c.subject(change.GetResourceId())}
		switch of := change.GetChange().(type) {
		case *clusterservicev1.ClusterChange_DesiredState:
			e.Kind = adminv1.TimelineDesiredState
			var paths []string
			for _, f := range of.DesiredState.GetFields() {
				e.Fields = append(e.Fields, adminv1.FieldDifference{Path: f.GetPath(), Before: f.GetBefore(), After: f.GetAfter()})
				paths = append(paths, fmt.Sprintf("%s from %s to %s", f.GetPath(), cmp.Or(f.GetBefore(), "no value"), cmp.Or(f.GetAfter(), "no value")))
			}
			e.Summary = fmt.Sprintf("Cluster Service accepted generation %d.", of.DesiredState.GetGeneration())
			if len(paths) > 0 {
				e.Summary = fmt.Sprintf("Cluster Service accepted generation %d, which changes %s.", of.DesiredState.GetGeneration(), strings.Join(paths, ", "))
			}
		case *clusterservicev1.ClusterChange_Phase:
			e.Kind = adminv1.TimelinePhase
			e.Summary = fmt.Sprintf("The phase changed from %s to %s.", enum(of.Phase.GetBefore(), "_PHASE_"), enum(of.Phase.GetAfter(), "_PHASE_"))
			if of.Phase.GetBefore() == "" {
				e.Summary = fmt.Sprintf("The phase is %s.", enum(of.Phase.GetAfter(), "_PHASE_"))
			}
		case *clusterservicev1.ClusterChange_Condition:
			e.Kind = adminv1.TimelineCondition
			e.Summary = condition(of.Condition)
		default:
			continue // a kind that this release does not know
		}
		c.entries = append(c.entries, e)
	}
}

// condition returns a sentence about a change of a condition, with its message.
func condition(change *clusterservicev1.ConditionChange) string {
	now := change.GetCondition()
	summary := fmt.Sprintf("The condition %s changed from %s to %s (%s).", now.GetType(), change.GetBefore(), now.GetStatus(), now.GetReason())
	switch change.GetBefore() {
	case "":
		summary = fmt.Sprintf("The condition %s is %s (%s).", now.GetType(), now.GetStatus(), now.GetReason())
	case now.GetStatus():
		summary = fmt.Sprintf("The condition %s is still %s, with the reason %s.", now.GetType(), now.GetStatus(), now.GetReason())
	}
	if now.GetMessage() != "" {
		summary += " It says: " + now.GetMessage()
	}
	if now.GetType() == clusterstatus.Applied && now.GetStatus() == "False" && now.GetReason() == clusterstatus.ApplyRefused {
		party := "an SRE"
		if len(clusterstatus.RefusedProperties(now.GetMessage())) > 0 {
			party = "the customer"
		}
		summary = strings.TrimSuffix(summary, ".") + ". This is permanent: " + party + " must act."
	}
	return summary
}

// addActions adds the actions that SREs requested.
func (c *collector) addActions(actions []adminv1.Operation, effects map[string]string) {
	for _, o := range actions {
		summary := fmt.Sprintf("The action %s is in progress.", o.Action)
		if o.EndTime != nil {
			summary = strings.TrimSpace(fmt.Sprintf("The action %s ended: %s.%s %s", o.Action, o.State, failure(o.Error), effects[o.ID]))
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: o.StartTime, EndTime: o.EndTime, Layer: adminv1.LayerAdmin, Kind: adminv1.TimelineAction, Subject: c.subject(o.Target.ResourceID), Summary: summary,
			Person: o.Actor.Name, Reason: o.Actor.Reason, Ticket: o.Actor.Ticket, ID: o.ID,
		})
	}
}

// addAccess adds the audited reads of SREs, and the requests that admin refused. Accepted actions have an operation, which is an entry
// already.
func (c *collector) addAccess(records []adminv1.AccessRecord) {
	for _, r := range records {
		p := r.Properties
		if p.OperationID != "" {
			continue
		}
		summary := fmt.Sprintf("The request %s %s.%s", p.Action, verb(p.Outcome), codeOf(p.ErrorCode))
		if p.Unconfirmed {
			summary += " No checkpoint confirms the record."
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: p.Time, Layer: adminv1.LayerAudit, Kind: adminv1.TimelineAccess, Summary: summary,
			Person: p.Person, Reason: p.Reason, Ticket: p.Ticket, ID: r.Name,
		})
	}
}

// verb returns the predicate of an outcome of an audit record.
func verb(outcome string) string {
	switch outcome {
	case "accepted", "refused":
		return "was " + outcome
	case "unknown":
		return "has an unknown outcome"
	}
	return outcome
}

func codeOf(code string) string {
	if code == "" {
		return ""
	}
	return " The error is " + code + "."
}

// addFleet adds upgrades, credentials and revocations.
func (c *collector) addFleet(fleet *adminv1.FleetLayer) {
	if fleet == nil {
		return
	}
	for _, u := range adminv1.Contents(fleet.Upgrades) {
		c.addUpgrade(u)
	}
	for _, credential := range adminv1.Contents(fleet.Credentials) {
		summary := fmt.Sprintf("A credential of class %s was requested by %s. Its state is %s.", strings.ToLower(enum(credential.GetSpec().GetClass().String(), "_CLASS_")),
			credential.GetSpec().GetRequester(), enum(credential.GetStatus().GetState().String(), "_STATE_"))
		if end := credential.GetStatus().GetExpirationTime(); end != nil {
			summary += fmt.Sprintf(" Its certificate is valid until %s.", end.AsTime().Format(time.RFC3339))
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: credential.GetCreateTime().AsTime(), Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineCredential, Summary: summary,
			Reason: credential.GetSpec().GetReason(), ID: credential.GetUid(),
		})
	}
	for _, r := range adminv1.Contents(fleet.Revocations) {
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: r.GetCreateTime().AsTime(), EndTime: optional(r.GetStatus().GetCompletionTime()), Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineRevocation,
			Summary: fmt.Sprintf("The revocation of credentials of class %s was requested by %s. Its state is %s.", strings.ToLower(enum(r.GetClass().String(), "_CLASS_")), r.GetRequester(),
				enum(r.GetStatus().GetState().String(), "_STATE_")),
			Reason: r.GetReason(), ID: r.GetUid(),
		})
	}
}

// addUpgrade adds an upgrade and the steps that it has started.
func (c *collector) addUpgrade(u *clusterservicev1.Upgrade) {
	status := u.GetStatus()
	summary := fmt.Sprintf("The upgrade from %s to %s was requested. Its state is %s.", status.GetFromVersion(), u.GetSpec().GetVersion(), enum(status.GetState().String(), "_STATE_"))
	if status.GetMessage() != "" {
		summary += " " + status.GetMessage()
	}
	actor := u.GetSpec().GetActor()
	c.entries = append(c.entries, adminv1.TimelineEntry{
		Time: u.GetCreateTime().AsTime(), EndTime: optional(status.GetCompletionTime()), Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineUpgrade, Summary: summary,
		Person: actor.GetName(), Reason: actor.GetReason(), Ticket: actor.GetTicket(), ID: u.GetUid(),
	})
	for _, step := range status.GetSteps() {
		if step.GetStartTime() == nil {
			continue
		}
		subject := ""
		if step.GetNodePool() != "" {
			subject = "nodePools/" + step.GetNodePool()
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{
			Time: step.GetStartTime().AsTime(), EndTime: optional(step.GetCompletionTime()), Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineUpgradeStep, Subject: subject,
			Summary: strings.TrimSpace(fmt.Sprintf("The step from %s to %s is in state %s. %s", step.GetFromVersion(), step.GetToVersion(), enum(step.GetState().String(), "_STATE_"), step.GetMessage())),
			ID:      u.GetUid(),
		})
	}
}

// addJournal adds what monitor saw of the cluster's API.
func (c *collector) addJournal(journal *adminv1.Journal) {
	if journal == nil {
		return
	}
	for _, item := range slices.Backward(journal.Items) { // the oldest first
		e := adminv1.TimelineEntry{Time: item.Time, Layer: adminv1.LayerMonitor, Kind: adminv1.TimelineConcern}
		switch item.Event {
		case adminv1.JournalAPI:
			e.Kind = adminv1.TimelineAPI
			e.Summary = fmt.Sprintf("The API changed from %s to %s.", item.From, item.To)
			if item.From == "" {
				e.Summary = fmt.Sprintf("The API is %s.", item.To)
			}
			if item.Reason != "" {
				e.Summary += " The reason is " + item.Reason + "."
			}
		case adminv1.JournalConcernBegan:
			e.Summary = fmt.Sprintf("The concern %s began, at the fault of the %s.", item.Kind, item.Fault)
		case adminv1.JournalConcernEnded:
			e.Summary = fmt.Sprintf("The concern %s ended.", item.Kind)
		default:
			continue // an event that this release does not know
		}
		if !item.Since.IsZero() && item.Event != adminv1.JournalConcernEnded {
			e.Time = item.Since
		}
		if item.Evidence != "" {
			e.Summary += " Monitor saw: " + item.Evidence
		}
		c.entries = append(c.entries, e)
	}
}

// addAlerts adds the alerts that fired.
func (c *collector) addAlerts(fired []alerts.Alert) {
	for _, a := range fired {
		about := "the region"
		switch {
		case a.Cluster:
			about = "the cluster"
		case a.Shard != "":
			about = "the provision shard " + a.Shard
		case a.Concern != "":
			about = "clusters with the concern " + a.Concern
		}
		e := adminv1.TimelineEntry{Time: a.Start, Layer: adminv1.LayerAlerts, Kind: adminv1.TimelineAlert, ID: a.Name,
			Summary: fmt.Sprintf("The alert %s about %s fired. Its severity is %s.", a.Name, about, a.Severity)}
		if !a.End.IsZero() {
			e.EndTime = &a.End
		}
		c.entries = append(c.entries, e)
	}
}

// addOutages adds the components that are away and that the cluster depends on: those of the region and of its provision shard.
func (c *collector) addOutages(components []adminv1.Component, shard string) {
	for _, component := range components {
		if !component.Away() || component.Since.IsZero() || component.ProvisionShard != "" && component.ProvisionShard != shard {
			continue
		}
		summary := fmt.Sprintf("%s is %s.", component.Name, component.State)
		if component.Message != "" {
			summary += " It says: " + component.Message
		}
		c.entries = append(c.entries, adminv1.TimelineEntry{Time: component.Since, Layer: adminv1.LayerRegion, Kind: adminv1.TimelineOutage, Summary: summary})
	}
}

// enum returns the value of an enum without its prefix, in camel case: NodePools for UPGRADE_STATE_NODE_POOLS.
func enum(name, separator string) string {
	if _, short, found := strings.Cut(name, separator); found {
		name = short
	}
	var value strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		if word != "" {
			value.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return value.String()
}

// optional returns a time; nil if it is absent.
func optional(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

// lasted returns a duration in whole seconds, or in milliseconds if it is short.
func lasted(start, end time.Time) time.Duration {
	d := end.Sub(start)
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// failure returns a sentence about an error; empty if there is none.
func failure(detail *adminv1.FailureDetail) string {
	if detail == nil {
		return ""
	}
	return fmt.Sprintf(" The error is %s: %s", detail.Code, detail.Message)
}
